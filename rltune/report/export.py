"""Write the tables of a run folder as CSV and, with pyarrow, as Parquet."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltune.analysis.audit import Audit
from rltune.analysis.benchmarks import benchmark_rows
from rltune.analysis.table_rows import eval_rows, gate_rows, history_rows, task_ids, trial_rows
from rltune.analysis.table_summary import summary_rows
from rltune.analysis.tables import ALL_TABLES, BENCHMARKS, HistoryRow, Row, mark_of
from rltune.lineage.read import read_if_there
from rltune.report.figures.records import MEAN
from rltune.report.figures.source import Tables, about_folder
from rltune.report.table_files import has_parquet, write_csv, write_parquet
from rltune.store.files import sha256_file
from rltune.store.run_folder import RecordsRead, SweepFolder
from rltune.store.rundir import RunDir


@dataclass(frozen=True, slots=True)
class Table:
    """One table that was written."""

    name: str  # of the table
    rows: int  # its rows
    files: tuple[Path, ...]  # as CSV, then as Parquet where pyarrow is installed


def write_tables(folder: SweepFolder, read: RecordsRead, audit: Audit, out: Path) -> list[Table]:
    """Write every table of a run folder into `out`.

    The trials of the sweep only: its children and repetitions are no part of the comparison.
    """
    mark, records = mark_of(audit), read.records
    trials = trial_rows(folder, records, mark=mark, lineage_ids=lineage_ids(folder.run))
    tasks = task_ids(folder.run, records)
    gates = gate_rows(eval_rows(records, tasks, mark=mark))
    rows: dict[str, Callable[[], Iterable[Row]]] = {
        "trials": lambda: trials,
        "history": lambda: history_rows(records, mark=mark),
        "evals": lambda: eval_rows(records, tasks, mark=mark),
        "gates": lambda: gates,
        "summary": lambda: summary_rows(trials, gates),
    }
    is_parquet = has_parquet()
    if benchmarks := benchmark_rows(trials, history_rows(records, mark=mark)):
        rows[BENCHMARKS] = lambda: benchmarks
    return [_write(name, rows[name], out, is_parquet=is_parquet) for name in rows]


def tables_of(
    folder: SweepFolder,
    read: RecordsRead,
    audit: Audit,
    *,
    estimator: str = MEAN,
    keep: Callable[[HistoryRow], bool] | None = None,
) -> Tables:
    """Return what figures come from, without writing it: equal to an export that is read back.

    `keep` chooses the rows of the history; without it all are there.
    """
    mark, records = mark_of(audit), read.records
    trials = trial_rows(folder, records, mark=mark, lineage_ids=lineage_ids(folder.run))
    gates = gate_rows(eval_rows(records, task_ids(folder.run, records), mark=mark))
    return Tables(
        about_folder(folder, audit, estimator=estimator),
        tuple(trials),
        tuple(row for row in history_rows(records, mark=mark) if keep is None or keep(row)),
        tuple(summary_rows(trials, gates)),
    )


def _write(name: str, rows: Callable[[], Iterable[Row]], out: Path, *, is_parquet: bool) -> Table:
    kind, path = ALL_TABLES[name], out / f"{name}.csv"
    count = write_csv(path, kind, rows())
    if not is_parquet:
        path.with_suffix(".parquet").unlink(missing_ok=True)  # an older one would tell otherwise
        return Table(name, count, (path,))
    write_parquet(path.with_suffix(".parquet"), kind, rows())
    return Table(name, count, (path, path.with_suffix(".parquet")))


def lineage_ids(run: RunDir) -> dict[str, str]:
    """Return the newest lineage row of each trial: trial id -> exp_id; none without a table."""
    read = read_if_there(run.results)
    return {row.trial_id: row.exp_id for row in read.rows} if read is not None else {}


def outputs_of(tables: Sequence[Table], others: Iterable[Path]) -> list[dict[str, Any]]:
    """Return name and digest of every file written, with the rows of a table."""
    named: list[tuple[Path, int | None]] = []
    named += [(path, table.rows) for table in tables for path in table.files]
    named += [(path, None) for path in others]
    entries = [
        {"path": path.name, "sha256": sha256_file(path)} | ({} if rows is None else {"rows": rows})
        for path, rows in named
    ]
    return sorted(entries, key=lambda entry: str(entry["path"]))
