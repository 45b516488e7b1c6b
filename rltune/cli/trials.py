"""Which trial a person means, and its records."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rltune.errors import Problem, StoreError

if TYPE_CHECKING:
    from rltune.runner.single import Source
    from rltune.store.rundir import RunDir, TrialDir
    from rltune.types import TrialSpec


def find_trial(given: str, folder: Path | None, runs_dir: Path) -> "TrialDir":
    """Return the trial that a person means.

    Args:
        given: Folder, id, start of an id, or condition@seed.
        folder: Run folder to look in; None for the newest one, then all others.
        runs_dir: Folder of all run folders.

    Raises:
        StoreError: None or several are meant.

    """
    from rltune.report.folder import find_run, run_folders
    from rltune.store.rundir import RunDir, TrialDir

    path = Path(given)
    if path.is_dir() and run_of(TrialDir(path.resolve())) is not None:
        return TrialDir(path.resolve())
    newest = find_run(folder, runs_dir)
    matches = _matches(newest, given)
    if not matches and folder is None and given:
        others = (RunDir(path) for path in run_folders(runs_dir) if path != newest.path)
        matches = [match for run in others for match in _matches(run, given)]
    if len(matches) != 1:
        raise StoreError(_not_one(given, newest, matches))
    run, spec = matches[0]
    return _dir_of(run, spec)


def run_of(trial: "TrialDir") -> "RunDir | None":
    """Return the run folder of a trial's folder; None when it is in none."""
    from rltune.report.folder import is_run_folder
    from rltune.store.rundir import RunDir

    parents = trial.path.resolve().parents
    kind = {"trials": 1, "children": 1}.get(parents[0].name)
    if kind is None and len(parents) > 1 and parents[1].name == "reruns":
        kind = 2
    if kind is None or len(parents) <= kind or not is_run_folder(parents[kind]):
        return None
    return RunDir(parents[kind])


def read_source(trial: "TrialDir") -> "Source":
    """Return a trial with its records and the metric of its sweep.

    Raises:
        StoreError: It has not started, its records were edited, or it is a repetition.

    """
    from rltune.report.folder import confounded_reason, read_folder
    from rltune.runner.single import open_source
    from rltune.store.origin import read_origin

    run = run_of(trial)
    if run is None:
        raise StoreError(Problem(str(trial.path), "is no trial's folder inside a run folder."))
    origin = read_origin(trial)
    if origin is not None and origin.kind == "rerun":
        what = f"is a repetition of {origin.parent}."
        raise StoreError(Problem(str(trial.path), what, action="Give the original."))
    sweep = read_folder(run)
    reason = confounded_reason(run)
    mode: Literal["max", "min"] = "min" if sweep.metric_mode == "min" else "max"
    return open_source(
        run,
        trial,
        metric=(sweep.metric_name, mode),
        disqualified=f"confounded, run anyway: {reason}" if reason else "",
    )


Match = tuple["RunDir", "TrialSpec"]


def _matches(run: "RunDir", given: str) -> list[Match]:
    """Return the trials that a text names: the sweep's own go before their children."""
    from rltune.report.folder import read_folder
    from rltune.store.derived import child_dirs

    own = read_folder(run).specs
    children = [child.read_spec() for child in child_dirs(run)]
    found = (
        [spec for spec in (*own, *children) if spec.trial_id == given]
        or [spec for spec in own if _is_meant(spec, given)]
        or [spec for spec in children if _is_meant(spec, given)]
    )
    return [(run, spec) for spec in found]


def _dir_of(run: "RunDir", spec: "TrialSpec") -> "TrialDir":
    child = run.child(spec.trial_id)
    return child if child.spec.is_file() else run.trial(spec.trial_id)


def _is_meant(spec: "TrialSpec", given: str) -> bool:
    """Tell whether a text is the start of a trial's id, or names its condition and its seed."""
    short = spec.condition.partition("=")[2] or spec.condition
    names = (f"{spec.condition}@{spec.seed}", f"{short}@{spec.seed}")
    return given in names or (bool(given) and spec.trial_id.startswith(given))


def _not_one(given: str, run: "RunDir", matches: Iterable[Match]) -> Problem:
    from rltune.report.folder import read_folder

    several = [f"{there.path.name}/{spec.trial_id}" for there, spec in matches]
    if several:
        return Problem(
            str(run.path.parent),
            f"{given!r} names {len(several)} trials: {', '.join(several)}.",
            action="Give more of its id, or its folder.",
        )
    names = ", ".join(f"{spec.condition}@{spec.seed}" for spec in read_folder(run).specs)
    return Problem(str(run.path), f"{given!r} is no trial here.", f"Choose one of {names}.")
