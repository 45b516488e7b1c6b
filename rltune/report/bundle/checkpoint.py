"""Whether a checkpoint in a bundle is the one that its trial's gate chose.

Four records name its weights: DONE and the finding's trials.json, with the digest that was taken
when the checkpoint was written at the gate; its own state.json; and the card. Whoever changes all
of them is caught by running the trial again, which gives the same weights.
"""

from collections.abc import Iterator
from pathlib import Path

from rltune.store.files import read_json, sha256_file
from rltune.store.rundir import TrialDir
from rltune.types import TrialResult, TrialSpec

_WEIGHTS = "policy.safetensors"


def checkpoint_problems(trial: TrialDir, spec: TrialSpec) -> Iterator[str]:
    """Yield where a checkpoint is not the one that the gate chose, or not as its records say."""
    result = trial.read_done()
    folders = sorted(trial.checkpoints.glob("step-*"))
    if not folders or result is None:
        return
    if [path.name for path in folders] != [trial.checkpoint(result.best_step).name]:
        names = ", ".join(path.name for path in folders)
        yield f"{names}, but the gate chose step {result.best_step}"
        return
    yield from _by_result(folders[0], result)
    yield from _by_state(folders[0], spec)
    yield from _by_card(trial, folders[0])


def _by_result(folder: Path, result: TrialResult) -> Iterator[str]:
    weights, known = folder / _WEIGHTS, result.weights_sha256
    if known and (not weights.is_file() or sha256_file(weights) != known):
        yield f"{folder.name}/{_WEIGHTS} is not the file of weights_sha256 in DONE"


def _by_state(folder: Path, spec: TrialSpec) -> Iterator[str]:
    """Yield the files that are not as they were written, by the checkpoint's own list."""
    path = folder / "state.json"
    if not path.is_file():
        return
    state = read_json(path)
    if state["config_hash"] != spec.config_hash:
        yield f"{folder.name}/state.json is of another config"
    for name, digest in state["sha256"].items():
        if not (folder / name).is_file() or sha256_file(folder / name) != digest:
            yield f"{folder.name}/{name} is not the file of its state.json"


def _by_card(trial: TrialDir, folder: Path) -> Iterator[str]:
    card = read_json(trial.model_card) if trial.model_card.is_file() else {}
    if card.get("trial_id") != trial.trial_id:
        yield "card.json, which names its weights, is missing or another trial's"
        return
    known, weights = (card["checkpoint"] or {}).get("file_sha256"), folder / _WEIGHTS
    if weights.is_file() and not known:
        yield f"{folder.name}/{_WEIGHTS} is no file of its card"
    elif known and (not weights.is_file() or sha256_file(weights) != known):
        yield f"{folder.name}/{_WEIGHTS} is not the file of its card"
