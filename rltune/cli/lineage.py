"""`rltune lineage`: query the table of everything that was tried."""

from pathlib import Path
from typing import Annotated

import typer

from rltune.cli.console import answer, emit_json, show, warn
from rltune.cli.options import RUNS, Json, RunsDir
from rltune.errors import Problem, StoreError
from rltune.lineage.across import chain_across
from rltune.lineage.query import children, recent
from rltune.lineage.read import ReadResult
from rltune.lineage.table import LineageStore
from rltune.report.lineage_files import calibration_of
from rltune.report.render_lineage import (
    best_view,
    calibration_view,
    chain_view,
    lineage_view,
    rows_view,
)
from rltune.store.run_folder import find_run, is_run_folder
from rltune.store.rundir import RunDir

Source = Annotated[
    Path | None,
    typer.Argument(
        metavar="[DIR|FILE]",
        help="Folder of a run or a study, or a results.tsv (default: the newest run folder).",
        show_default=False,
    ),
]
Row = Annotated[
    str | None,
    typer.Option(
        "--of", metavar="EXP_ID", help="Row id or the start of it (default: the best row)."
    ),
]


def table_path(source: Path | None, runs_dir: Path) -> Path:
    """Return the path of the table.

    Raises:
        StoreError: The run folder does not exist, or has no table yet.

    """
    if source is not None and (source.is_file() or source.suffix == ".tsv"):
        path, what, action = source, "there is no such file.", ""
    elif source is not None and not is_run_folder(source) and RunDir(source).results.is_file():
        return RunDir(source).results  # of a study
    else:
        path = find_run(source, runs_dir).results
        what = "no trial has ended yet, so there is no lineage."
        action = "`rltune status` shows what runs."
    if not path.is_file():
        raise StoreError(Problem(str(path), what, action=action))
    return path


def open_table(source: Path | None, runs_dir: Path) -> LineageStore:
    """Open the table; StoreError if it does not exist."""
    return LineageStore.open(table_path(source, runs_dir))


def _read(source: Path | None, runs_dir: Path) -> tuple[LineageStore, ReadResult]:
    """Return a table and its rows; warn of lines that cannot be read."""
    store = open_table(source, runs_dir)
    read = store.read()
    for problem in read.problems:
        warn(f"warning: {problem}")
    return store, read


def show_table(source: Source = None, runs_dir: RunsDir = RUNS, as_json: Json = False) -> None:
    """Show the lineage: one row for each attempt, with how it ended.

    Example:
      rltune lineage show
      rltune lineage show runs/kl-55b4c751 --json

    """
    store, read = _read(source, runs_dir)
    calibration = calibration_of(store, read)
    if as_json:
        named = {"metric": store.metric_name, "mode": store.metric_mode}
        emit_json(named | {"rows": read.rows, "calibration": calibration})
    else:
        show(lineage_view(read.rows, store.metric, calibration))


def show_best(source: Source = None, runs_dir: RunsDir = RUNS, as_json: Json = False) -> None:
    """Show the best kept or baseline row and its ties.

    Example:
      rltune lineage best
      rltune lineage best nights.tsv

    """
    store = open_table(source, runs_dir)
    top = store.best()
    if as_json:
        named = {"metric": store.metric_name, "mode": store.metric_mode}
        emit_json(named | {"best": top.row, "ties": top.ties})
    else:
        show(best_view(top, store.metric))


def show_chain(
    source: Source = None, of: Row = None, runs_dir: RunsDir = RUNS, as_json: Json = False
) -> None:
    """Show how a row came about: the chain of kept rows from the root to it.

    A sweep that started from a trial of another sweep goes on in that one's table.

    Example:
      rltune lineage chain
      rltune lineage chain runs/kl-55b4c751 --of kl_loss_coef=0.01-s0

    """
    store = open_table(source, runs_dir)
    name = of or best_id(store)
    chain = chain_across(store, name)
    answer(chain, chain_view(chain), as_json=as_json)


def best_id(store: LineageStore) -> str:
    """Return the id of the best row; StoreError where no kept row has a metric."""
    top = store.best().row
    if top is None:
        what = "no kept row has a metric yet, so there is no best."
        raise StoreError(Problem(str(store.path), what, action="Name a row with --of EXP_ID."))
    return top.exp_id


def show_recent(
    source: Source = None,
    n: Annotated[int, typer.Option("-n", min=0, help="Number of rows.")] = 10,
    runs_dir: RunsDir = RUNS,
    as_json: Json = False,
) -> None:
    """Show the last rows, newest first.

    Example:
      rltune lineage recent
      rltune lineage recent runs/kl-55b4c751 -n 5

    """
    rows = recent(_read(source, runs_dir)[1].rows, n)
    answer(rows, rows_view(rows), as_json=as_json)


def show_children(
    source: Source = None, of: Row = None, runs_dir: RunsDir = RUNS, as_json: Json = False
) -> None:
    """Show the rows that start from a row, whatever their status.

    Example:
      rltune lineage children
      rltune lineage children runs/kl-55b4c751 --of kl_loss_coef=0.0-s0

    """
    store, read = _read(source, runs_dir)
    rows = children(read.rows, of or best_id(store))
    if as_json:
        emit_json(rows)
    elif rows:
        show(rows_view(rows))
    else:
        show("No row departs from it.")


def show_calibration(
    source: Source = None, runs_dir: RunsDir = RUNS, as_json: Json = False
) -> None:
    """Show each prediction next to the measured value, and how accurate the predictions were.

    Example:
      rltune lineage calibration
      rltune lineage calibration runs/kl-55b4c751 --json

    """
    calibration = calibration_of(*_read(source, runs_dir))
    answer(calibration, calibration_view(calibration), as_json=as_json)
