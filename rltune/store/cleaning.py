"""What may be deleted from a run folder without losing a result, and the size of it all."""

import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltune.errors import InputError
from rltune.spec.trial_reference import PREFIX, is_reference
from rltune.store.files import read_json
from rltune.store.new_folder import discard, is_being_written
from rltune.store.rundir import RunDir, TrialDir

_STOP, _PART = "STOP", ".part"


@dataclass(frozen=True, slots=True)
class Spare:
    """Something that may be deleted."""

    path: Path  # a file or a folder
    size: int  # bytes on disk
    why: str  # why nobody needs it


def spares(run: RunDir, *, best_only: bool = False) -> tuple[Spare, ...]:
    """Return what may be deleted from a run folder that nobody drives, in order of path.

    Kept are every record, each launch's (then empty) folder, the newest checkpoints of a trial that
    is not finished, and of a finished one the checkpoint that the gate chose and its newest. Kept
    are also exported models that a run beside it refers to, that lost their checkpoint, or that a
    process is writing.

    Args:
        run: The run folder.
        best_only: Of a finished trial, keep the chosen checkpoint only. The trial can be tested,
            rerun and continued as before; it cannot be extended from its last step.

    """
    items = [*_of_ray(run), *_half_written(run)]
    for trial in (*run.trial_dirs(), *run.child_dirs(), *run.rerun_dirs()):
        items += _checkpoints(trial, best_only=best_only)
    items += _models(run, {spare.path for spare in items})
    return tuple(sorted(items, key=lambda spare: spare.path))


def remove(spares: tuple[Spare, ...]) -> None:
    """Delete them; one that is already gone is skipped."""
    for spare in spares:
        _remove(spare.path)


def _remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    elif path.suffix == _PART:
        discard(path)
    elif path.parent.name == "models":
        discard(path.rename(path.with_name(f".{path.name}.gone{_PART}")))  # whole, or not there
    else:
        shutil.rmtree(path, ignore_errors=True)


def size_of(path: Path) -> int:
    """Return the bytes on disk of a file, or of everything below a folder; links count nothing."""
    if path.is_symlink():
        return 0
    try:
        if path.is_dir():
            return sum(size_of(inner) for inner in path.iterdir())
        return path.stat().st_blocks * 512
    except FileNotFoundError:  # a live sweep replaces files and folders
        return 0


def _of_ray(run: RunDir) -> Iterator[Spare]:
    for launch in sorted(run.tune.iterdir()) if run.tune.is_dir() else ():
        inside = sorted(launch.iterdir()) if launch.is_dir() else ()
        for path in inside:
            if path.name != _STOP:
                yield _spare(path, "Ray Tune's record of an ended launch, which nothing reads")


def _half_written(run: RunDir) -> Iterator[Spare]:
    for path in sorted(run.path.rglob(".*")):
        if path.name.endswith((".tmp", _PART)) and not is_being_written(path):
            yield _spare(path, "left by a process that was killed while it wrote")


def _checkpoints(trial: TrialDir, *, best_only: bool) -> Iterator[Spare]:
    for path in sorted(trial.checkpoints.glob("torn-step-*")):
        yield _spare(path, "a checkpoint that cannot be read")
    if not trial.done.exists() or trial.done.name in trial.torn_markers():
        return
    links = [trial.best_heldout] if best_only else [trial.best_heldout, trial.latest]
    kept = {link.resolve() for link in links}
    if not trial.best_heldout.exists():
        return
    for path in sorted(trial.checkpoints.glob("step-*")):
        if path.resolve() not in kept:
            yield _spare(path, "a checkpoint of a finished trial that is not the chosen one")
    if trial.latest.is_symlink() and trial.latest.resolve() not in kept:
        yield _spare(trial.latest, "a link to a checkpoint that is deleted, too")


def _models(run: RunDir, going: Collection[Path]) -> Iterator[Spare]:
    """Yield exported models that nothing refers to, and that can be exported again."""
    exported = sorted(run.models.glob("[!.]*@*")) if run.models.is_dir() else []
    named = _references(run) if exported else None
    for path in exported if named is not None else ():
        trial_id, _, step = path.name.removesuffix("-adapter").rpartition("@")
        if not step.isdigit() or any(trial_id.startswith(trial) for trial in named or ()):
            continue
        checkpoints = [
            one.checkpoint(int(step)) for one in (run.trial(trial_id), run.child(trial_id))
        ]
        if any(one.is_dir() and one not in going for one in checkpoints):
            yield _spare(path, "an exported model that no run refers to; its checkpoint is kept")


def _references(run: RunDir) -> set[str] | None:
    """Return the trials of a run, or starts of their ids, that runs beside it take as a model.

    None where a plan cannot be read, so that nobody knows.
    """
    found: set[str] = set()
    for plan in run.path.parent.glob("*/plan.json"):
        try:
            content: Any = read_json(plan)
            policies = [trial["config"]["policy"] for trial in content["trials"]]
            names = [n for p in policies for n in (p["model"], p["lora"]["init"])]
        except (InputError, KeyError, TypeError):
            return None
        for name in filter(is_reference, names):
            path, _, trial = name.removeprefix(PREFIX).rpartition("/")
            if Path(path).name == run.path.name:
                found.add(trial.partition("@")[0])
    return found


def _spare(path: Path, why: str) -> Spare:
    return Spare(path, size_of(path), why)
