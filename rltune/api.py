"""The public Python interface: a finished or running sweep's folder as plain rows.

Everything here is also a name of `rltune` itself (`from rltune import load_sweep`), and imports
neither torch nor Ray. docs/api.md is its page.
"""

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rltune.analysis.audit import Audit, judge_folder
from rltune.analysis.compare import Compared
from rltune.analysis.curves import Band, bands_of, points_of
from rltune.analysis.lookup import find_side, find_trial
from rltune.analysis.rates import resolution_of
from rltune.analysis.table_rows import eval_rows, gate_rows, history_rows, task_ids, trial_rows
from rltune.analysis.table_summary import summary_rows, verdicts_of
from rltune.analysis.tables import (
    ALL_TABLES,
    EvalRow,
    GateRow,
    HistoryRow,
    Row,
    SummaryRow,
    TrialRow,
    mark_of,
)
from rltune.analysis.verdict_words import Verdict
from rltune.errors import InputError, Problem, RltuneError, StoreError
from rltune.report.compare_text import compare_and_say
from rltune.report.export import lineage_ids, tables_of
from rltune.report.figures.draw import draw as draw_figure
from rltune.report.figures.make import ALL_FIGURES
from rltune.report.figures.records import MEAN, Figure, LeftOut
from rltune.report.figures.source import ESTIMATORS
from rltune.report.figures.style import KINDS
from rltune.report.table_files import columns_of, read_csv, read_parquet
from rltune.store.run_folder import (
    RecordsRead,
    SweepFolder,
    find_run,
    read_folder,
    read_records,
)
from rltune.types import Json

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "Audit",
    "Band",
    "Compared",
    "EvalRow",
    "Figure",
    "GateRow",
    "HistoryRow",
    "RltuneError",
    "SummaryRow",
    "Sweep",
    "TrialRow",
    "Verdict",
    "draw",
    "frame",
    "load_sweep",
    "read_table",
]


def load_sweep(path: str | Path | None = None, *, runs_dir: str | Path | None = None) -> "Sweep":
    """Read a run folder as it is now; load it again to see what a running sweep added.

    Args:
        path: The run folder, `runs/<sweep>-<hash8>`; None for the newest one in `runs_dir`.
        runs_dir: Folder of all run folders; None for RLTUNE_RUNS_DIR, else `runs`.

    Raises:
        RltuneError: There is no run folder, or its plan cannot be read.

    """
    runs = Path(runs_dir or os.environ.get("RLTUNE_RUNS_DIR") or "runs")
    folder = read_folder(find_run(None if path is None else Path(path), runs))
    read = read_records(folder)
    if read.problems:
        unread = f"{folder.run.path}: lines that could not be read: {len(read.problems)}"
        warnings.warn(f"{unread}; see .problems", stacklevel=2)
    return Sweep(folder, read, judge_folder(folder, read))


@dataclass(frozen=True, slots=True, repr=False)
class Sweep:
    """One run folder at the moment it was loaded. Make it with `load_sweep`."""

    _folder: SweepFolder
    _read: RecordsRead
    _audit: Audit

    def __repr__(self) -> str:
        """Return one line: path, trials finished, and what stands against the sweep."""
        done = f"{self._audit.finished} of {self._audit.trials} trials finished"
        return f"<Sweep {self.path}: {done}, {self.mark}>"

    @property
    def path(self) -> Path:
        """The run folder."""
        return self._folder.run.path

    @property
    def name(self) -> str:
        """Name of the sweep."""
        return self._folder.name

    @property
    def metric(self) -> str:
        """The held-out metric that decides, such as `heldout/success_rate`."""
        return self._folder.metric_name

    @property
    def conditions(self) -> tuple[str, ...]:
        """Labels of the conditions in the order of the plan."""
        return tuple(dict.fromkeys(spec.condition for spec in self._folder.specs))

    @property
    def mark(self) -> str:
        """`ok`, or what stands against the sweep; the last column of every table."""
        return mark_of(self._audit)

    @property
    def problems(self) -> tuple[str, ...]:
        """Lines of the trials' files that could not be read and are in no table."""
        return tuple(str(problem) for problem in self._read.problems)

    def trials(self) -> list[TrialRow]:
        """Return one row a planned trial, whatever became of it."""
        ids = lineage_ids(self._folder.run)
        return trial_rows(self._folder, self._read.records, mark=self.mark, lineage_ids=ids)

    def history(self, *metrics: str) -> list[HistoryRow]:
        """Return one row a number of metrics.jsonl: of the metrics named, else of all.

        Raises:
            RltuneError: No trial logged a metric of that name.

        """
        rows = list(history_rows(self._read.records, mark=self.mark))
        self._require_logged(metrics, (row.metric for row in rows))
        return [row for row in rows if not metrics or row.metric in metrics]

    def evals(self) -> list[EvalRow]:
        """Return one row a measure of a held-out episode at a gate."""
        tasks = task_ids(self._folder.run, self._read.records)
        return list(eval_rows(self._read.records, tasks, mark=self.mark))

    def gates(self) -> list[GateRow]:
        """Return one row a measure of a trial at a gate, over its tasks."""
        return gate_rows(self.evals())

    def summary(self) -> list[SummaryRow]:
        """Return the estimates over seeds, their intervals, and the tests against the control."""
        return summary_rows(self.trials(), self.gates())

    def verdicts(self) -> list[Verdict]:
        """Return what may be said of each condition against the control, in the plan's order."""
        return list(verdicts_of(self.trials()))

    def bands(self, *metrics: str) -> list[Band]:
        """Return what a curve shows: mean over seeds and 95 % t interval at each step.

        Args:
            metrics: Names of logged metrics; none for the sweep's own.

        Raises:
            RltuneError: No trial logged a metric of that name.

        """
        names = metrics or (self.metric,)
        points = points_of(self._read.records)
        self._require_logged(names, (point.metric for point in points))
        return bands_of(points, names, resolutions={self.metric: self._resolution()})

    def figure(self, name: str, *, estimator: str = MEAN) -> Figure:
        """Return the data of a figure as `rltune export` has it; every point names its trial.

        Args:
            name: `learning_curves`, `comparison`, `dynamics`, `heatmap`, `budget` or, with named
                evaluation sets, `benchmarks`.
            estimator: Over seeds: `mean`, or `iqm`, the interquartile mean.

        Raises:
            RltuneError: There is no such figure, or the sweep has no data for it.

        """
        _require_choice("figure", name, tuple(ALL_FIGURES))
        _require_choice("estimator", estimator, ESTIMATORS)
        tables = tables_of(self._folder, self._read, self._audit, estimator=estimator)
        made = ALL_FIGURES[name](tables)
        if isinstance(made, LeftOut):
            raise StoreError(Problem(str(self.path), f"no figure {name!r}: {made.reason}."))
        return made

    def compare(self, a: Json, b: Json) -> Compared:
        """Compare the last gates of two conditions (`0.01`) or trials (`"0.01@0"`).

        Raises:
            RltuneError: One of them does not exist, or they cannot be compared.

        """
        sides = (find_side(name, self.path, self.path.parent)[0] for name in (a, b))
        return compare_and_say(*sides)

    def audit(self) -> Audit:
        """Return whether what really ran was comparable; writes nothing."""
        return self._audit

    def trial_path(self, trial: str) -> Path:
        """Return the folder of a trial: its id, the start of it, or condition@seed.

        Raises:
            RltuneError: No trial matches, or several do.

        """
        return find_trial(trial, self.path, self.path.parent).path

    def _resolution(self) -> float:
        """Return the smallest step of the sweep's metric: of a rate, one held-out task."""
        sizes = [int(spec.config["gate"]["tasks"]) for spec in self._folder.specs]
        return resolution_of(self.metric, tasks=min(sizes, default=0))

    def _require_logged(self, names: Sequence[str], logged: Iterable[str]) -> None:
        known = set(logged) if names else set()
        missing = [name for name in names if name not in known]
        if missing:
            what = f"no trial logged {', '.join(map(repr, missing))}."
            allowed = f"Logged are {', '.join(sorted(known)) or 'no metrics yet'}."
            raise StoreError(Problem(str(self.path), what, allowed))


def _require_choice(what: str, given: str, choices: Sequence[str]) -> None:
    if given not in choices:
        allowed = f"Choose one of {', '.join(choices)}."
        raise InputError(Problem(what, f"{given!r} is not a known {what}.", allowed))


def read_table(path: str | Path) -> list[Row]:
    """Read a table that `rltune export` wrote, by its name: `figures/trials.csv` or `.parquet`.

    Raises:
        RltuneError: The file does not exist, is not an exported table, or has other columns.

    """
    file = Path(path)
    kind = ALL_TABLES.get(file.stem)
    if kind is None or file.suffix not in (".csv", ".parquet"):
        names = ", ".join(ALL_TABLES)
        what, allowed = "is not an exported table.", f"Tables are {names}, as .csv or .parquet."
        raise StoreError(Problem(str(file), what, allowed))
    if not file.is_file():
        action = "Run `rltune export DIR` first."
        raise StoreError(Problem(str(file), "there is no such file.", action=action))
    return read_csv(file, kind) if file.suffix == ".csv" else list(read_parquet(file, kind))


def draw(figure: Figure, kind: str = "png") -> bytes:
    """Return a figure as a file: the same bytes as those of `rltune export`.

    Args:
        figure: Of `Sweep.figure`.
        kind: `png`, `svg` or `pdf`.

    Raises:
        RltuneError: The kind is unknown, or matplotlib is not installed.

    """
    _require_choice("kind", kind, KINDS)
    try:
        return draw_figure(figure, kind=kind)
    except ModuleNotFoundError as error:
        action = "Run `pip install 'rltune[figures]'`; the data of the figure is there without it."
        what = f"needs {error.name or 'matplotlib'}, which is not installed."
        raise InputError(Problem("draw", what, action=action)) from error


def frame(rows: Iterable[Row | Band]) -> "DataFrame":
    """Return rows of one table as a pandas DataFrame, a column a field; unknown numbers are NA.

    Raises:
        RltuneError: There are no rows, or rows of several tables.

    """
    import pandas as pd

    records = list(rows)
    kinds = {type(row) for row in records}
    if len(kinds) != 1 or not kinds <= {*ALL_TABLES.values(), Band}:
        given = ", ".join(sorted(kind.__name__ for kind in kinds)) or "no rows"
        what, allowed = f"got {given}.", "It takes the rows of one table, at least one."
        raise InputError(Problem("frame", what, allowed))
    types = {str: "str", bool: "boolean", int: "Int64", float: "float64"}
    return pd.DataFrame(
        {
            name: pd.array([getattr(row, name) for row in records], dtype=types[column])
            for name, column in columns_of(kinds.pop()).items()
        }
    )
