"""Rows of lineage that a driver left out, which died after the last trial of a sweep had ended.

The next launch of a sweep writes them. A study launches no sweep whose trials have all finished.
"""

from collections.abc import Sequence
from pathlib import Path

from rltune.lineage.record import Proposal, domain_of
from rltune.lineage.row import LineageRow
from rltune.lineage.share import shared_id
from rltune.lineage.table import LineageStore
from rltune.runner.folder import as_begun, next_launch
from rltune.runner.recorder import RESULTS, open_recorder
from rltune.store.lock import take_driver_lock
from rltune.store.run_folder import confounded_reason
from rltune.store.rundir import RunDir
from rltune.study.state import Standing
from rltune.types import RowStatus

_FINISHED = RESULTS | {RowStatus.DIVERGED}


def record_finished(found: Sequence[Standing], own: RunDir, *, argv: Sequence[str]) -> None:
    """Write what the tables of finished sweeps and that of their study lack.

    Args:
        found: Where the sweeps stand.
        own: The study's folder.
        argv: The command line, for the records.

    Raises:
        StoreError: One of these sweeps has a driver, or a table cannot be written.

    """
    for one in found:
        if one.is_finished and not _is_recorded(one, own.results):
            _record(one, own.results, argv)


def _is_recorded(one: Standing, shared: Path) -> bool:
    """Tell whether each finished trial has a row, and each row its copy."""
    copies = {row.exp_id for row in _rows(shared)}
    rows = _rows(one.run.results)
    ended = {row.trial_id for row in rows if row.status in _FINISHED}
    finished = {name for name, status in one.statuses.items() if status.is_finished}
    run = one.run.path.name
    return finished <= ended and all(shared_id(run, row.exp_id) in copies for row in rows)


def _rows(table: Path) -> Sequence[LineageRow]:
    return LineageStore.open(table).read().rows if table.is_file() else ()


def _record(one: Standing, shared: Path, argv: Sequence[str]) -> None:
    run, sweep = one.run, one.loaded.spec
    with take_driver_lock(run.lock, argv=argv):
        specs = as_begun(run, one.due.specs)
        reason = confounded_reason(run)
        open_recorder(
            run,
            launch=next_launch(run),
            metric=(sweep.metric.name, sweep.metric.mode),
            commit="",  # a trial that finished has recorded its own
            disqualified=f"confounded, run anyway: {reason}" if reason else "",
            shared=shared,
            domains=[domain_of(spec) for spec in specs],
            proposal=Proposal(sweep.hypothesis, sweep.specialist, sweep.parent),
        ).reconcile_all(specs)
