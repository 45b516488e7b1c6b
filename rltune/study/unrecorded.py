"""Rows of lineage that a driver left out, which died after the last trial of a sweep had ended.

The next launch of a sweep writes them. A study launches no sweep whose trials have all finished.
"""

from collections.abc import Sequence, Set
from pathlib import Path

from rltune.lineage.record import FINISHED
from rltune.lineage.share import shared_id
from rltune.lineage.table import rows_in
from rltune.runner.folder import as_begun, sweep_recorder
from rltune.store.lock import take_driver_lock
from rltune.store.proof import confounded_reason, unproved
from rltune.store.rundir import RunDir
from rltune.study.state import Standing


def record_finished(found: Sequence[Standing], own: RunDir, *, argv: Sequence[str]) -> None:
    """Write what the tables of finished sweeps and that of their study lack.

    Args:
        found: Where the sweeps stand.
        own: The study's folder.
        argv: The command line, for the records.

    Raises:
        StoreError: One of these sweeps has a driver, or a table cannot be written.

    """
    copies = {row.exp_id for row in rows_in(own.results)}
    for one in found:
        if one.is_finished and not _is_recorded(one, copies):
            _record(one, own.results, argv)


def _is_recorded(one: Standing, copies: Set[str]) -> bool:
    """Tell whether each finished trial has a row, and each row its copy."""
    rows = rows_in(one.run.results)
    ended = {row.trial_id for row in rows if row.status in FINISHED}
    finished = {name for name, status in one.statuses.items() if status.is_finished}
    run = one.run.path.name
    return finished <= ended and all(shared_id(run, row.exp_id) in copies for row in rows)


def _record(one: Standing, shared: Path, argv: Sequence[str]) -> None:
    run = one.run
    with take_driver_lock(run.lock, argv=argv):
        specs = as_begun(run, one.due.specs)
        sweep_recorder(
            run,
            one.loaded.spec,
            specs,
            commit="",  # a trial that finished has recorded its own
            confounded=confounded_reason(run) or unproved(run),
            shared=shared,
        ).reconcile_all(specs)
