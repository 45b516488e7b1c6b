"""Look up the trial, or the side of a comparison, that a user names."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rltune.analysis.audit import judge_folder
from rltune.analysis.compare_sides import Side
from rltune.analysis.named import of_condition, of_seed
from rltune.comparability.records import TrialRecord
from rltune.errors import Problem, StoreError
from rltune.store.origin import read_origin
from rltune.store.proof import open_warnings, same_runs
from rltune.store.run_folder import (
    RecordsRead,
    SweepFolder,
    find_run,
    is_run_folder,
    read_folder,
    read_record,
    read_records,
    run_folders,
)
from rltune.store.rundir import RunDir, TrialDir
from rltune.types import TrialSpec


def find_trial(given: str, folder: Path | None, runs_dir: Path) -> TrialDir:
    """Return the trial that a user names.

    Args:
        given: Folder, id, start of an id, or condition@seed.
        folder: Run folder to look in; None for the newest one, then all others.
        runs_dir: Folder of all run folders.

    Raises:
        StoreError: None or several are meant.

    """
    if _is_trial_folder(given):
        return TrialDir(Path(given).resolve())
    return _only_one(given, *_found(given, folder, runs_dir))


def _only_one(given: str, newest: RunDir, matches: list["Match"]) -> TrialDir:
    if len(matches) != 1:
        raise StoreError(_not_one(given, newest, matches))
    run, spec = matches[0]
    return _dir_of(run, spec)


def _found(given: str, folder: Path | None, runs_dir: Path) -> tuple[RunDir, list["Match"]]:
    """Return the run folder to look in, and the trials that a text names there, else anywhere."""
    newest = find_run(folder, runs_dir)
    matches = _matches(newest, given)
    if not matches and folder is None and given:
        others = (RunDir(path) for path in run_folders(runs_dir) if path != newest.path)
        matches = [match for run in others for match in _matches(run, given)]
    return newest, matches


def run_of(trial: TrialDir) -> RunDir | None:
    """Return the run folder of a trial's folder; None when it is in none."""
    parents = trial.path.resolve().parents
    kind = {"trials": 1, "children": 1}.get(parents[0].name)
    if kind is None and len(parents) > 1 and parents[1].name == "reruns":
        kind = 2
    if kind is None or len(parents) <= kind or not is_run_folder(parents[kind]):
        return None
    return RunDir(parents[kind])


Match = tuple[RunDir, TrialSpec]


def _matches(run: RunDir, given: str) -> list[Match]:
    """Return the trials that a text names: the sweep's own go before their children."""
    planned = read_folder(run).specs
    children = [child.read_spec() for child in run.child_dirs()]
    specs = (
        [spec for spec in (*planned, *children) if spec.trial_id == given]
        or _meant(planned, given)
        or _meant(children, given)
    )
    return [(run, spec) for spec in specs]


def _dir_of(run: RunDir, spec: TrialSpec) -> TrialDir:
    child = run.child(spec.trial_id)
    return child if child.spec.is_file() else run.trial(spec.trial_id)


def _meant(specs: Sequence[TrialSpec], given: str) -> list[TrialSpec]:
    """Return the trials of a condition and a seed, else those whose id starts with a text."""
    by_id = [spec for spec in specs if given and spec.trial_id.startswith(given)]
    return of_seed(specs, given) or by_id


def _not_one(given: str, run: RunDir, matches: Iterable[Match]) -> Problem:
    several = [f"{there.path.name}/{spec.trial_id}" for there, spec in matches]
    if several:
        return Problem(
            str(run.path.parent),
            f"{given!r} names {len(several)} trials: {', '.join(several)}.",
            action="Give more of the id, or the trial's folder.",
        )
    names = ", ".join(f"{spec.condition}@{spec.seed}" for spec in read_folder(run).specs)
    return Problem(str(run.path), f"{given!r} is not a trial here.", f"Choose one of {names}.")


def find_side(given: Any, folder: Path | None, runs_dir: Path) -> tuple[Side, tuple[Problem, ...]]:
    """Return the condition or the trial that is named, and what could not be read of it.

    Args:
        given: Label of a condition or the value in it, else a trial as in `find_trial`;
            DIR:NAME names one of another run folder.
        folder: Run folder to look in; None for the newest one.
        runs_dir: Folder of all run folders.

    Raises:
        StoreError: Nothing or several are meant, or a repetition.

    """
    place, _, name = given.rpartition(":") if isinstance(given, str) else ("", "", given)
    if place and Path(place).is_dir():
        folder, given = Path(place), name
    if _is_trial_folder(given):
        return _trial_side(find_trial(given, folder, runs_dir))
    sweep = read_folder(find_run(folder, runs_dir))
    meant = of_condition(sweep.specs, given)
    if meant:
        return _condition_side(sweep, meant[0].condition)
    newest, matches = _found(str(given), folder, runs_dir)
    if sweep.specs and not matches:
        raise StoreError(_no_side(str(given), sweep))
    return _trial_side(_only_one(str(given), newest, matches))


def _no_side(given: str, sweep: SweepFolder) -> Problem:
    """Return that a text names neither a condition nor a trial, and what it may name."""
    labels = list(dict.fromkeys(spec.condition for spec in sweep.specs))
    first = f"{labels[0]}@{sweep.specs[0].seed}"
    allowed = f"Choose one of {', '.join(labels)}, or a trial of one, such as {first}."
    place = given.rpartition(":")[0]
    if "/" in place:
        allowed = f"{place} is no folder. {allowed}"
    names = [*labels, *(label.partition("=")[2] for label in labels)]
    near = get_close_matches(given, names, n=1) if given[:1].isalpha() else []  # a number is exact
    hint = f"Did you mean {near[0]!r}?" if near else ""
    return Problem(str(sweep.run.path), f"{given!r} is not a trial here.", allowed, hint)


def _is_trial_folder(given: Any) -> bool:
    if not isinstance(given, str) or not Path(given).is_dir():
        return False
    return run_of(TrialDir(Path(given).resolve())) is not None


def _condition_side(sweep: SweepFolder, condition: str) -> tuple[Side, tuple[Problem, ...]]:
    read = read_records(sweep)
    records = [record for record in read.records if record.spec.condition == condition]
    return _side(sweep, read, condition, records, is_trial=False), read.problems


def _trial_side(trial: TrialDir) -> tuple[Side, tuple[Problem, ...]]:
    run, origin = run_of(trial), read_origin(trial)
    if run is None:
        raise StoreError(Problem(str(trial.path), "is not a trial folder inside a run folder."))
    if origin is not None and origin.kind == "rerun":
        what = f"is a repetition of {origin.parent}, so there is nothing new to compare."
        raise StoreError(Problem(str(trial.path), what, action="Give the original."))
    sweep, spec = read_folder(run), trial.read_spec()
    problems: list[Problem] = []
    record = read_record(trial, spec, problems)
    label = f"{spec.condition}@{spec.seed}" if origin is None else spec.trial_id
    side = _side(sweep, read_records(sweep), label, [record], is_trial=True)
    return side, tuple(problems)


def _side(
    sweep: SweepFolder,
    read: RecordsRead,
    label: str,
    records: Sequence[TrialRecord],
    *,
    is_trial: bool,
) -> Side:
    return Side(
        label,
        records,
        is_trial=is_trial,
        run=sweep.run.path.resolve().name,
        metric=sweep.metric_name,
        mode=sweep.metric_mode,
        audit=judge_folder(sweep, read),
        sweep=() if is_trial else read.records,
        same_runs=same_runs(sweep.run),
        stamps=open_warnings(sweep.run),
    )
