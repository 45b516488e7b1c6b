"""The rendered lineage on disk, and a copy of exactly what was shown."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from rltune.lineage.calibration import Calibration, calibrate
from rltune.lineage.noise import OutcomesOf, outcomes_of_run
from rltune.lineage.read import ReadResult
from rltune.lineage.row import LineageRow
from rltune.lineage.table import LineageStore
from rltune.report.lineage_report import LineageReport, render_lineage_report
from rltune.store.files import write_text_atomic
from rltune.store.rundir import RunDir

SNAPSHOTS = "lineage_snapshots"


@dataclass(frozen=True, slots=True)
class Rendered:
    """What was written."""

    leaderboard: Path  # LEADERBOARD.md
    knowledge: Path  # KNOWLEDGE.md
    snapshot: Path  # both in one file, which later renderings leave as it is


def outcomes_beside(table: Path) -> OutcomesOf:
    """Return a lookup of the per-task outcomes behind rows; outside a run folder there are none."""
    run = RunDir(table.parent)
    return outcomes_of_run(run) if run.trials.is_dir() else _nothing


def _nothing(row: LineageRow) -> None:
    return None


def calibration_of(store: LineageStore, read: ReadResult) -> Calibration:
    """Return how good the predictions of a table were."""
    return calibrate(read.rows, outcomes_beside(store.path))


def lineage_report_of(store: LineageStore) -> LineageReport:
    """Return the report on a table, as text."""
    read = store.read()
    found = calibration_of(store, read)
    return render_lineage_report(read.rows, store.metric, found, problems=len(read.problems))


def write_lineage_report(store: LineageStore, folder: Path, *, name: str = "") -> Rendered:
    """Write LEADERBOARD.md and KNOWLEDGE.md, and keep a copy of what they show.

    Args:
        store: The table.
        folder: Where to.
        name: Of the copy, such as the launch; empty: the hash of what it shows. The hash follows
            the name where a copy of this name shows something else.

    """
    report = lineage_report_of(store)
    whole = f"{report.leaderboard}\n{report.knowledge}"
    digest = hashlib.sha256(whole.encode()).hexdigest()[:10]
    snapshots = folder / SNAPSHOTS
    snapshots.mkdir(parents=True, exist_ok=True)
    snapshot = snapshots / f"{name or digest}.md"
    if snapshot.exists() and snapshot.read_text(encoding="utf-8") != whole:
        snapshot = snapshots / f"{name}-{digest}.md"  # what was shown before stays as it was
    made = Rendered(folder / "LEADERBOARD.md", folder / "KNOWLEDGE.md", snapshot)
    write_text_atomic(made.leaderboard, report.leaderboard)
    write_text_atomic(made.knowledge, report.knowledge)
    write_text_atomic(made.snapshot, whole)
    return made
