"""`rltune export`: write the tables of a run folder with their evidence, and its figures."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Group

from rltune.analysis.audit import Audit, audit_folder
from rltune.analysis.curves import points_of, to_csv
from rltune.analysis.tables import OK, mark_of
from rltune.cli.console import emit_json, show, warn
from rltune.cli.options import RUNS, Json, RunFolder, RunsDir
from rltune.errors import InputError, Problem
from rltune.report.export import Table, outputs_of, write_tables
from rltune.report.figures.files import Written, write_figures
from rltune.report.figures.rebuild import find_export, rebuild
from rltune.report.figures.source import about_of, read_tables
from rltune.report.manifest import Code, digests, input_files, manifest
from rltune.report.render import line, quantity, short_path, verbatim
from rltune.report.render_run import audit_verdict
from rltune.runner.provenance import code_state, versions
from rltune.store.files import write_json_atomic, write_text_atomic
from rltune.store.run_folder import (
    RecordsRead,
    SweepFolder,
    find_run,
    newest_run,
    read_folder,
    read_records,
)
from rltune.store.secret import masked

_NO_PARQUET = "no Parquet: run `pip install 'rltune[parquet]'`; the CSV files are written"
_NO_DRAWINGS = (
    "no drawings: run `pip install 'rltune[figures]'`; the data of the figures are written"
)

Estimator = Annotated[
    Literal["mean", "iqm"] | None,
    typer.Option("--estimator", help="Estimator over seeds in the figures (default: mean)."),
]
FromTables = Annotated[
    bool,
    typer.Option("--from-tables", help="Redraw the figures from an existing export only."),
]


def export(
    folder: RunFolder = None,
    runs_dir: RunsDir = RUNS,
    estimator: Estimator = None,
    from_tables: FromTables = False,
    as_json: Json = False,
) -> None:
    """Write the tables (CSV and Parquet), their manifest and the figures to DIR/figures.

    trials, history, evals, gates and summary are what every figure can be made again from, with
    --from-tables; docs/export.md says what each column is, docs/figures.md what each figure shows.
    Both say so when the audit failed, and which trial is behind each point.

    Example:
      rltune export runs/kl-55b4c751
      rltune export runs/kl-55b4c751/figures --from-tables

    """
    if from_tables:
        if estimator is not None:
            what = "figures from tables keep the estimator of their export."
            raise InputError(Problem("--estimator", what, action="Leave out one of the two."))
        _rebuild(folder, runs_dir, as_json=as_json)
        return
    sweep = read_folder(find_run(folder, runs_dir))
    inputs = digests(sweep.run, input_files(sweep))
    read = read_records(sweep)
    audited = audit_folder(sweep, read)
    points = points_of(read.records)
    out = sweep.run.path / "figures"
    out.mkdir(exist_ok=True)
    tables = write_tables(sweep, read, audited, out)
    write_text_atomic(out / "curves.csv", to_csv(points))
    content = _manifest(sweep, read, audited, inputs, estimator or "mean")
    figures = _write_figures(out, tables, content)
    for problem in read.problems:
        warn(f"unreadable: {problem}")
    _say(audited, out, tables, figures, len(points), as_json=as_json)
    _say_missing(figures)
    if all(len(table.files) == 1 for table in tables):
        warn(_NO_PARQUET)


def _manifest(
    sweep: SweepFolder,
    read: RecordsRead,
    audited: Audit,
    inputs: list[dict[str, Any]],
    estimator: str,
) -> dict[str, Any]:
    """Return the content of manifest.json without the list of outputs."""
    state = code_state()
    command = ["rltune", *(masked(word) for word in sys.argv[1:])]
    code = Code(command, versions(), state.label, state.source_sha256)
    return manifest(sweep, read, audited, code, inputs=inputs, estimator=estimator)


def _write_figures(out: Path, tables: Sequence[Table], content: dict[str, Any]) -> Written:
    """Write the figures from the tables read back, then manifest.json with everything written."""
    figures = write_figures(read_tables(out, about_of(content)), out)
    outputs = outputs_of(tables, [out / "curves.csv", *figures.files])
    write_json_atomic(out / "manifest.json", {**content, "outputs": outputs})
    return figures


def _rebuild(folder: Path | None, runs_dir: Path, *, as_json: bool) -> None:
    """Redraw the figures of an export, and say whether they match its manifest."""
    done = rebuild(find_export(folder if folder is not None else newest_run(runs_dir)))
    if as_json:
        emit_json(
            {
                "from": done.kind,
                "wrote": [str(path) for path in done.written.files],
                "left_out": {one.figure: one.reason for one in done.written.left_out},
                "notes": list(done.written.notes),
                "differ": [*done.other_data, *done.other_drawings],
            }
        )
    else:
        lines = [verbatim(text) for text in _figure_lines(done.written)]
        show(Group(*lines, verbatim(f"made from the {done.kind} tables alone")))
    if done.other_data:
        warn(f"not the data that manifest.json lists: {', '.join(done.other_data)}")
    if done.other_drawings and not done.other_data:
        names = ", ".join(done.other_drawings)
        warn(f"same data, drawn differently than listed (another matplotlib or rltune): {names}")
    _say_missing(done.written)


def _say_missing(figures: Written) -> None:
    """Warn of figures that are missing, with the reason."""
    for one in figures.left_out:
        warn(f"no figure {one.figure}: {one.reason}")
    if figures.files and not figures.is_drawn:
        warn(_NO_DRAWINGS)


def _figure_lines(figures: Written) -> list[str]:
    """Return one line a figure, its files together."""
    kinds: dict[Path, list[str]] = {}
    for path in figures.files:
        kinds.setdefault(path.with_suffix(""), []).append(path.suffix)
    return [
        f"wrote {short_path(stem)}{first}{''.join(f', {kind}' for kind in others)}"
        for stem, (first, *others) in kinds.items()
    ]


def _say(
    audited: Audit,
    out: Path,
    tables: Sequence[Table],
    figures: Written,
    n_values: int,
    *,
    as_json: bool,
) -> None:
    """Print the verdict of the audit and the files, or the same as JSON."""
    mark = mark_of(audited)
    others = [out / "curves.csv", *figures.files, out / "manifest.json"]
    if as_json:
        emit_json(
            {
                "audit": audited.verdict.value,
                "mark": mark,
                "values": n_values,
                "rows": {table.name: table.rows for table in tables},
                "wrote": [str(path) for table in tables for path in table.files]
                + [str(path) for path in others],
                "left_out": {one.figure: one.reason for one in figures.left_out},
                "notes": list(figures.notes),
            }
        )
        return
    lines = [
        f"wrote {short_path(table.files[0])}{', .parquet' * (len(table.files) - 1)}: "
        f"{quantity(table.rows)} rows"
        for table in tables
    ]
    lines += [f"wrote {short_path(others[0])}: {quantity(n_values)} values"]
    lines += _figure_lines(figures)
    lines += [f"wrote {short_path(others[-1])}: digests of what was read and written"]
    marked = [] if mark == OK else [line(f"marked in every row: {mark}", "yellow")]
    show(
        Group(
            audit_verdict(audited),
            *(verbatim(text) for text in lines),
            *marked,
            *(line(f"note: {note}", "yellow") for note in figures.notes),
        )
    )
