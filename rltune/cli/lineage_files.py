"""`rltune lineage render`, `import`, `export`, `repair`: they write files."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rltune.cli.console import emit_json, warn
from rltune.cli.lineage import Source, open_table, table_path
from rltune.cli.options import RUNS, Json, RunsDir
from rltune.errors import InputError, Problem
from rltune.lineage.autoresearch import VAL_BPB, autoresearch_columns, read_autoresearch
from rltune.lineage.fieldkit import read_fieldkit, to_fieldkit
from rltune.lineage.importing import ForeignTable, admit, import_into
from rltune.lineage.read import Metric, read_metric
from rltune.lineage.repair import Damage, find_damage
from rltune.lineage.repair import repair as mend
from rltune.lineage.table import LineageStore
from rltune.report.lineage_files import lineage_report_of, write_lineage_report
from rltune.report.render import short_path
from rltune.store.files import write_text_atomic


class ImportFormat(StrEnum):
    """Dialects that can be read."""

    FIELDKIT = "fieldkit"
    AUTORESEARCH = "autoresearch"


class ExportFormat(StrEnum):
    """Dialects that can be written."""

    FIELDKIT = "fieldkit"


def render(
    source: Source = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Target folder (default: next to the table)."),
    ] = None,
    to_stdout: Annotated[
        bool, typer.Option("--print", help="Print both files instead of writing them.")
    ] = False,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Write LEADERBOARD.md and KNOWLEDGE.md, with copies in lineage_snapshots/.

    Example:
      rltune lineage render
      rltune lineage render runs/kl-55b4c751

    """
    store = open_table(source, runs_dir)
    if to_stdout:
        report = lineage_report_of(store)
        typer.echo(f"{report.leaderboard}\n{report.knowledge}", nl=False)
        return
    made = write_lineage_report(store, out or store.path.parent)
    for path in (made.leaderboard, made.knowledge, made.snapshot):
        typer.echo(f"wrote {short_path(path)}")


def export_table(
    source: Source = None,
    dialect: Annotated[
        ExportFormat, typer.Option("--format", help="Format to write.")
    ] = ExportFormat.FIELDKIT,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Target file (default: standard output)."),
    ] = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Write the table in another tool's format. Values without a column there are dropped.

    Example:
      rltune lineage export
      rltune lineage export runs/kl-55b4c751 --format fieldkit --out results.tsv

    """
    store = open_table(source, runs_dir)
    read = store.read()
    for problem in read.problems:
        warn(f"warning: {problem}")
    text = to_fieldkit(read.rows)
    if out is None:
        typer.echo(text, nl=False)
    else:
        if out.resolve() == store.path.resolve():
            raise InputError(Problem(f"--out {out}", "is the table itself.", "Give another file."))
        out.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomic(out, text)
        typer.echo(f"wrote {out}: {len(read.rows)} rows")
    lower = store.metric_mode == "min"
    warn(f"{dialect} does not store the direction: open it with lower_is_better={lower}.")


def import_table(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Table of another tool.", show_default=False)
    ],
    dialect: Annotated[
        ImportFormat, typer.Option("--format", help="Format of the table.", show_default=False)
    ],
    into: Annotated[
        Path,
        typer.Option(
            "--into",
            metavar="TABLE",
            help="Lineage table to append to; created if missing.",
            show_default=False,
        ),
    ],
    metric: Annotated[
        str | None,
        typer.Option("--metric", metavar="NAME", help="Name of the metric in the metric column."),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode", metavar="max|min", help="Whether higher (max) or lower (min) is better."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be imported; write nothing.")
    ] = False,
) -> None:
    """Append another tool's rows to a lineage table. Exit code 1 if a record was skipped.

    Example:
      rltune lineage import results.tsv --into nights.tsv --format autoresearch
      rltune lineage import results.tsv --into nights.tsv --format fieldkit --metric em --mode max

    """
    named, table = _foreign(file, dialect, into, metric, mode)
    store = LineageStore(into, named.name, named.mode)
    if dry_run:
        known = {row.exp_id for row in store.read().rows}
        done = admit(table, known)
    else:
        done = import_into(store, table)
    for note in done.notes:
        warn(f"note: {note}")
    for problem in done.problems:
        warn(f"warning: {problem}")
    verb = "would be imported" if dry_run else "imported"
    typer.echo(f"{into}: {len(done.rows)} rows {verb}, {len(done.problems)} records skipped")
    raise typer.Exit(1 if done.problems else 0)


def _foreign(
    file: Path, dialect: ImportFormat, into: Path, metric: str | None, mode: str | None
) -> tuple[Metric, ForeignTable]:
    """Return what a foreign table measures, and what it holds."""
    if mode not in (None, "max", "min"):
        what = f"{mode!r} is not a direction."
        raise InputError(Problem("--mode", what, "Choose max or min."))
    if dialect is ImportFormat.AUTORESEARCH:
        metric = metric or autoresearch_columns(file)[1]
        mode = mode or (VAL_BPB.mode if metric == VAL_BPB.name else None)
        named = _metric(into, metric, mode)
        return named, read_autoresearch(file, named)
    named = _metric(into, metric, mode)
    return named, read_fieldkit(file, named)


def _metric(into: Path, metric: str | None, mode: str | None) -> Metric:
    """Return the metric that is given; what is left out is that of a table that exists."""
    if into.exists():
        theirs = read_metric(into)
        return Metric(metric or theirs.name, mode or theirs.mode)
    if metric is not None and mode is not None:
        return Metric(metric, mode)
    missing = "--mode max or --mode min" if metric else "--metric NAME and --mode max or min"
    what = "the other table does not say which way is better, and this one does not exist yet."
    raise InputError(Problem(str(into), what, action=f"Give {missing}."))


def repair(
    source: Source = None,
    write: Annotated[
        bool, typer.Option("--write", help="Apply the repair (default: dry run).")
    ] = False,
    runs_dir: RunsDir = RUNS,
    as_json: Json = False,
) -> None:
    """Move damaged lines to TABLE.torn. Exit code 1 as long as there is damage to repair.

    Example:
      rltune lineage repair
      rltune lineage repair runs/kl-55b4c751 --write

    """
    path = table_path(source, runs_dir)
    damage = mend(path) if write else find_damage(path)
    if as_json:
        emit_json(_damage_json(damage, is_written=write))
    else:
        _say_damage(damage, is_written=write)
    raise typer.Exit(0 if write or damage.is_clean else 1)


def _damage_json(damage: Damage, *, is_written: bool) -> dict[str, object]:
    lines = [{"line": bad.number, "why": bad.why, "bytes": len(bad.content)} for bad in damage.bad]
    return {
        "table": str(damage.path),
        "rows": damage.rows,
        "bad_lines": lines,
        "notes": damage.notes,
        "side_file": str(damage.side_file),
        "written": is_written,
    }


def _say_damage(damage: Damage, *, is_written: bool) -> None:
    if damage.is_clean:
        typer.echo(f"{damage.path}: {damage.rows} rows, nothing to repair")
        return
    for bad in damage.bad:
        typer.echo(f"{damage.path}:{bad.number}: {bad.why}")
    for note in damage.notes:
        typer.echo(f"{damage.path}: {note}")
    lines = f"{len(damage.bad)} line{'' if len(damage.bad) == 1 else 's'}"
    done = "moved" if is_written else "would move"
    typer.echo(f"{damage.rows} rows stay, {lines} {done} to {damage.side_file}")
    if not is_written:
        typer.echo("Nothing was changed. Add --write to apply the repair.")
