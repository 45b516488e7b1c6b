"""`rltune compare A B`: whether two trials, or two conditions, can be told apart."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rltune.cli.console import emit_json, show, warn
from rltune.cli.options import RUNS, Json, RunFolder, RunsDir

if TYPE_CHECKING:
    from rltune.report.compare_sides import Side
    from rltune.report.folder import SweepFolder

_SIDE = "Condition, or a trial (condition@seed, its id, its folder); DIR:NAME for another folder."


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help=_SIDE, show_default=False)],
    b: Annotated[str, typer.Argument(metavar="B", help="The same.", show_default=False)],
    folder: RunFolder = None,
    runs_dir: RunsDir = RUNS,
    as_json: Json = False,
) -> None:
    """Compare the last gates of A and B: difference, interval, test, sample size, one sentence.

    Over seeds, seed by seed where both have them; two single trials task by task, which says
    nothing about other seeds. Refused where the held-out tasks or the metrics are not the same.
    """
    from rltune.report.compare_text import compare_and_say, compared_view

    found = compare_and_say(*(_side(given, folder, runs_dir) for given in (a, b)))
    if as_json:
        emit_json(found)
    else:
        show(compared_view(found))


def _side(given: str, folder: Path | None, runs_dir: Path) -> "Side":
    """Return the condition or the trial that a text names."""
    from rltune.report.folder import find_run, read_folder

    place, _, name = given.rpartition(":")
    if place and Path(place).is_dir():
        folder, given = Path(place), name
    if not Path(given).is_dir():
        sweep = read_folder(find_run(folder, runs_dir))
        condition = _condition(sweep, given)
        if condition is not None:
            return _condition_side(sweep, condition)
    return _trial_side(given, folder, runs_dir)


def _condition(sweep: "SweepFolder", given: str) -> str | None:
    """Return the condition that a text names: its label, or the value in it."""
    labels = dict.fromkeys(spec.condition for spec in sweep.specs)
    return next((one for one in labels if given in (one, one.partition("=")[2])), None)


def _condition_side(sweep: "SweepFolder", condition: str) -> "Side":
    from rltune.report.audit import judge_folder
    from rltune.report.compare_sides import Side
    from rltune.report.folder import read_records

    read = read_records(sweep)
    for problem in read.problems:
        warn(f"unreadable: {problem}")
    records = [record for record in read.records if record.spec.condition == condition]
    audit, run = judge_folder(sweep, read), sweep.run.path.resolve().name
    return Side(condition, records, False, run, sweep.metric_name, sweep.metric_mode, audit)


def _trial_side(given: str, folder: Path | None, runs_dir: Path) -> "Side":
    from rltune.cli.trials import find_trial, run_of
    from rltune.errors import Problem, StoreError
    from rltune.report.audit import judge_folder
    from rltune.report.compare_sides import Side
    from rltune.report.folder import read_folder, read_record, read_records
    from rltune.store.origin import read_origin

    trial = find_trial(given, folder, runs_dir)
    run, origin = run_of(trial), read_origin(trial)
    if run is None:
        raise StoreError(Problem(str(trial.path), "is no trial's folder inside a run folder."))
    if origin is not None and origin.kind == "rerun":
        what = f"is a repetition of {origin.parent}, which has nothing new to compare."
        raise StoreError(Problem(str(trial.path), what, action="Give the original."))
    sweep = read_folder(run)
    spec = trial.read_spec()
    problems: list[Problem] = []
    record = read_record(trial, spec, problems)
    for problem in problems:
        warn(f"unreadable: {problem}")
    is_child = origin is not None
    label = spec.trial_id if is_child else f"{spec.condition}@{spec.seed}"
    audit, name = judge_folder(sweep, read_records(sweep)), run.path.resolve().name
    return Side(label, [record], True, name, sweep.metric_name, sweep.metric_mode, audit)
