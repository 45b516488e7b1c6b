"""References to a trial's model: `trial:RUN/TRIAL[@STEP|@best|@latest]`, where a model is named.

RUN is the name of a run folder in the runs dir, or a path to one. The runs dir is the one that the
trial which names the reference is in; else RLTUNE_RUNS_DIR, else `runs`. No torch here: a reference
stands for a folder in RUN, `models/TRIAL@STEP`, which is exported once, before anything starts.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from rltune.errors import InputError, Problem

PREFIX = "trial:"
RUNS_VARIABLE = "RLTUNE_RUNS_DIR"
ABOUT = ("README.md", "rltune.json", "SHA256SUMS")
"""Files of an export that describe it; no program reads them."""

_FORM = "Give trial:RUN/TRIAL, with @STEP, @best or @latest behind it where another one is meant."
_LINKS = {"best": "best_heldout", "best_heldout": "best_heldout", "latest": "latest"}
_RUNS: ContextVar[Path | None] = ContextVar("_RUNS", default=None)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint that a reference means."""

    trial: Path  # folder of its trial
    run: Path  # the run folder
    step: int  # its training step

    @property
    def has_adapter(self) -> bool:
        """Whether its trial trained an adapter."""
        spec = json.loads((self.trial / "spec.json").read_text(encoding="utf-8"))
        return int(spec["config"]["policy"]["lora"]["rank"]) > 0

    def folder(self, *, adapter: bool) -> Path:
        """Return the folder that it is exported to: a whole model, or its adapter alone."""
        tail = "-adapter" if adapter else ""
        return self.run / "models" / f"{self.trial.name}@{self.step}{tail}"


def is_reference(name: str) -> bool:
    """Tell whether a name refers to a trial."""
    return name.startswith(PREFIX)


def model_path(name: str, base: Path, *, adapter: bool = False, where: str = "") -> Path:
    """Return the folder that a name of a model or an adapter stands for, whether it exists or not.

    Args:
        name: A folder, a hub id, or a reference.
        base: Folder to which relative paths refer.
        adapter: Whether `policy.lora.init` names it.
        where: What messages call the name; its key where empty.

    Raises:
        InputError: A reference means no checkpoint.

    """
    if not is_reference(name):
        return base / name
    where = where or ("policy.lora.init" if adapter else "policy.model")
    return checkpoint_of(name, base, where).folder(adapter=adapter)


@contextmanager
def looking_in(trial: Path) -> Iterator[None]:
    """Look for the runs of references where a trial is, for a while."""
    runs = [path.parent for path in trial.absolute().parents if _is_run(path)]
    token = _RUNS.set(runs[0] if runs else None)
    try:
        yield
    finally:
        _RUNS.reset(token)


@contextmanager
def looking_in_runs(runs: Path) -> Iterator[None]:
    """Look for the runs of references in a runs dir, for a while."""
    token = _RUNS.set(runs.absolute())
    try:
        yield
    finally:
        _RUNS.reset(token)


def checkpoint_of(name: str, base: Path, where: str) -> Checkpoint:
    """Return the checkpoint that a reference means.

    Args:
        name: The reference.
        base: Folder to which relative paths refer.
        where: What messages call it.

    Raises:
        InputError: There is no such run, trial or checkpoint, or one that may still move.

    """
    path, trial_name, which = _parts(name, where)
    run = _run(name, path, base, where)
    trial = _trial(name, run, trial_name, where)
    return Checkpoint(trial, run, _step(name, trial, which, where))


def recorded_checkpoint(name: str, places: Sequence[Path], where: str) -> Checkpoint:
    """Return the checkpoint that a reference means, by records whose checkpoints are elsewhere.

    Args:
        name: The reference.
        places: Runs dirs; the run is the first with the name of the folder that is meant.
        where: What messages call it.

    Raises:
        InputError: There is no such run or trial, or it has no result that names the checkpoint.

    """
    path, trial_name, which = _parts(name, where)
    run = next((one for place in places if _is_run(one := place / Path(path).name)), None)
    if run is None:
        raise InputError(Problem(where, f"{name!r} names a run that is not here."))
    trial = _trial(name, run, trial_name, where)
    return Checkpoint(trial, run, _recorded_step(name, trial, which, where))


def require_reference(name: str, base: Path, *, adapter: bool, where: str) -> Checkpoint:
    """Return the checkpoint that a reference means, with an adapter where one is meant.

    Raises:
        InputError: As in `checkpoint_of`, or its trial trained all weights.

    """
    found = checkpoint_of(name, base, where)
    if adapter and not found.has_adapter:
        what = f"{name!r} trained all weights, so it has no adapter."
        raise InputError(Problem(where, what, action="Name it in policy.model."))
    return found


def _parts(name: str, where: str) -> tuple[str, str, str]:
    """Return the run folder, the trial and the checkpoint that a reference names."""
    path, _, last = name.removeprefix(PREFIX).rpartition("/")
    trial, _, which = last.partition("@")
    if not path or not trial:
        raise InputError(Problem(where, f"{name!r} names no run and trial.", _FORM))
    return path, trial, which or "best"


def _run(name: str, path: str, base: Path, where: str) -> Path:
    runs = _RUNS.get() or base / (os.environ.get(RUNS_VARIABLE) or "runs")
    places = [runs / path, base / path]
    for place in places:
        if _is_run(place):
            return place.resolve()
    what = (
        f"{name!r} names the run {path!r}, which is neither in {runs} nor a path to a run folder."
    )
    raise InputError(Problem(where, what, action="Check the name, or set RLTUNE_RUNS_DIR."))


def _is_run(path: Path) -> bool:
    return (path / "sweep.yaml").is_file() or (path / "plan.json").is_file()


def _trial(name: str, run: Path, given: str, where: str) -> Path:
    """Return the folder of the trial with an id, or with the only id that begins so."""
    begun = [
        path
        for kind in ("trials", "children")
        for path in sorted((run / kind).glob("*/"))
        if (path / "spec.json").is_file()
    ]
    exact = [path for path in begun if path.name == given]
    found = exact or [path for path in begun if path.name.startswith(given)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(path.name for path in found or begun) or "(none has begun)"
    what = (
        f"{name!r} names {len(found) or 'no'} trial{'s' if len(found) > 1 else ''} of {run.name}."
    )
    raise InputError(Problem(where, what, f"Choose one of {known}."))


def _step(name: str, trial: Path, which: str, where: str) -> int:
    checkpoints = trial / "checkpoints"
    if which in _LINKS:
        if not (trial / "DONE").is_file():
            what = f"{name!r} may still move: {trial.name} has not finished."
            action = f"Let it finish, or give a step: @{_newest(checkpoints)}."
            raise InputError(Problem(where, what, action=action))
        folder = (checkpoints / _LINKS[which]).resolve()
    elif which.isascii() and which.isdigit():
        folder = checkpoints / f"step-{int(which):06d}"
    else:
        raise InputError(Problem(where, f"{name!r} names no checkpoint.", _FORM))
    is_there = folder.name.startswith("step-") and (folder / "policy.safetensors").is_file()
    if not is_there and not _is_exported(trial, folder.name):
        allowed = f"There are those of steps {', '.join(_steps(checkpoints)) or '(none)'}."
        raise InputError(Problem(where, f"{name!r}: checkpoint {which!r} is missing.", allowed))
    return int(folder.name.removeprefix("step-"))


def _recorded_step(name: str, trial: Path, which: str, where: str) -> int:
    """Return a step that is named, or the one that the result has for `best` or `latest`."""
    if which.isascii() and which.isdigit():
        return int(which)
    key = {"best_heldout": "best_step", "latest": "final_step"}.get(_LINKS.get(which, ""), "")
    try:
        return int(json.loads((trial / "DONE").read_text(encoding="utf-8"))[key])
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"{name!r}: {trial.name} has no result that names the checkpoint {which!r}."
        raise InputError(Problem(where, what)) from error


def _is_exported(trial: Path, checkpoint: str) -> bool:
    """Return whether a checkpoint was exported, so that it may have been cleaned up since."""
    step = checkpoint.removeprefix("step-")
    if not step.isdigit():
        return False
    folder = trial.parents[1] / "models" / f"{trial.name}@{int(step)}"
    whole = (folder, folder.with_name(f"{folder.name}-adapter"))
    return any((one / "SHA256SUMS").is_file() for one in whole)


def _steps(checkpoints: Path) -> list[str]:
    return [str(int(path.name[5:])) for path in sorted(checkpoints.glob("step-*"))]


def _newest(checkpoints: Path) -> str:
    return (_steps(checkpoints) or ["STEP"])[-1]
