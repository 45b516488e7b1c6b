"""`rltune lineage`: questions to the table of everything that was tried."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rltune.cli.console import emit_json, show, warn
from rltune.cli.lineage_files import export_table, import_table, render, repair
from rltune.cli.lineage_source import Source, open_table
from rltune.cli.options import RUNS, Json, RunsDir

if TYPE_CHECKING:
    from rltune.lineage.read import ReadResult
    from rltune.lineage.table import LineageStore

Row = Annotated[
    str | None,
    typer.Option(
        "--of", metavar="EXP_ID", help="Row id or the start of it (default: the best row)."
    ),
]


def register(group: typer.Typer, examples: Callable[..., str]) -> None:
    """Add the commands to the group, each with its example."""
    run = "runs/kl-31966bc3"
    commands: tuple[tuple[str, Callable[..., None], str], ...] = (
        ("show", show_table, f"{run} --json"),
        ("best", show_best, "nights.tsv"),
        ("chain", show_chain, f"{run} --of kl_loss_coef=0.01-s0"),
        ("recent", show_recent, f"{run} -n 5"),
        ("children", show_children, f"{run} --of kl_loss_coef=0.0-s0"),
        ("calibration", show_calibration, f"{run} --json"),
        ("render", render, f"{run}"),
        ("export", export_table, f"{run} --format fieldkit --out results.tsv"),
        ("repair", repair, f"{run} --write"),
    )
    for name, command, arguments in commands:
        lines = [f"rltune lineage {name}", f"rltune lineage {name} {arguments}"]
        group.command(name, epilog=examples(*lines))(command)
    foreign = "results.tsv --into nights.tsv"
    group.command(
        "import",
        epilog=examples(
            f"rltune lineage import {foreign} --format autoresearch",
            f"rltune lineage import {foreign} --format fieldkit --metric em --mode max",
        ),
    )(import_table)


def _read(source: Path | None, runs_dir: Path) -> "tuple[LineageStore, ReadResult]":
    """Return a table and its rows; lines that are no rows are warnings."""
    store = open_table(source, runs_dir)
    read = store.read()
    for problem in read.problems:
        warn(f"warning: {problem}")
    return store, read


def show_table(source: Source = None, runs_dir: RunsDir = RUNS, as_json: Json = False) -> None:
    """Show the lineage: one row for each attempt, with how it ended."""
    from rltune.report.lineage_files import calibration_of
    from rltune.report.render_lineage import lineage_view

    store, read = _read(source, runs_dir)
    found = calibration_of(store, read)
    if as_json:
        named = {"metric": store.metric_name, "mode": store.metric_mode}
        emit_json(named | {"rows": read.rows, "calibration": found})
    else:
        show(lineage_view(read.rows, store.metric, found))


def show_best(source: Source = None, runs_dir: RunsDir = RUNS, as_json: Json = False) -> None:
    """Show the best kept or baseline row and its ties."""
    from rltune.report.render_lineage import best_view

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
    """Show how a row came about: the chain of kept rows from the root to it."""
    from rltune.report.render_lineage import chain_view

    store = open_table(source, runs_dir)
    name = of or _best_id(store)
    found = store.chain(name)
    if as_json:
        emit_json(found)
    else:
        show(chain_view(found))


def _best_id(store: "LineageStore") -> str:
    from rltune.errors import Problem, StoreError

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
    """Show the last rows, newest first."""
    from rltune.lineage.query import recent
    from rltune.report.render_lineage import rows_view

    rows = recent(_read(source, runs_dir)[1].rows, n)
    if as_json:
        emit_json(rows)
    else:
        show(rows_view(rows))


def show_children(
    source: Source = None, of: Row = None, runs_dir: RunsDir = RUNS, as_json: Json = False
) -> None:
    """Show the rows that start from a row, whatever their status."""
    from rltune.lineage.query import children
    from rltune.report.render_lineage import rows_view

    store, read = _read(source, runs_dir)
    rows = children(read.rows, of or _best_id(store))
    if as_json:
        emit_json(rows)
    elif rows:
        show(rows_view(rows))
    else:
        show("No row departs from it.")


def show_calibration(
    source: Source = None, runs_dir: RunsDir = RUNS, as_json: Json = False
) -> None:
    """Show each prediction next to the measured value, and how accurate the predictions were."""
    from rltune.report.lineage_files import calibration_of
    from rltune.report.render_lineage import calibration_view

    found = calibration_of(*_read(source, runs_dir))
    if as_json:
        emit_json(found)
    else:
        show(calibration_view(found))
