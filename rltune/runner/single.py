"""One trial in this very process, outside a sweep's launch: reruns and children. No Ray."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from rltune.errors import Problem, StoreError
from rltune.lineage.noise import outcomes_of_run, with_noise
from rltune.lineage.query import ELIGIBLE
from rltune.lineage.record import RowContext, exp_id_of, row_for
from rltune.lineage.row import CHILD, RERUN, LineageRow
from rltune.lineage.table import LineageStore
from rltune.runner.folder import manifest_for
from rltune.runner.interrupts import stop_on_signal
from rltune.runner.launch_session import STOPPING
from rltune.runner.machine import short_temporary_folder
from rltune.runner.provenance import driver_provenance
from rltune.runner.recorder import commit_of, snapshot_of
from rltune.runner.trial import TrialPayload, run_trial
from rltune.spec.derive import derive_config
from rltune.spec.identity import config_hash
from rltune.spec.schema.sweep import Metric
from rltune.spec.trial_reference import looking_in
from rltune.store.files import utc_now
from rltune.store.origin import read_origin, require_current_config
from rltune.store.provenance import read_provenance
from rltune.store.rundir import RunDir, TrialDir
from rltune.track.make import wandb_id
from rltune.trainer.models.references import make_references
from rltune.types import RowStatus, TrialSpec, TrialStatus


@dataclass(frozen=True, slots=True)
class Source:
    """A trial that others are made from."""

    run: RunDir  # the run folder that it is in
    trial: TrialDir  # its folder
    spec: TrialSpec  # what it was asked to do
    recorded: Mapping[str, Any]  # content of its config.yaml
    provenance: Mapping[str, Any]  # content of its provenance.json
    metric: Metric  # the held-out metric that decides
    disqualified: str = ""  # why no trial of this run may count; empty when they may


def open_source(
    run: RunDir,
    trial: TrialDir,
    *,
    metric: Metric,
    disqualified: str = "",
) -> Source:
    """Read a trial's records.

    Raises:
        StoreError: It has not started, an older version of rltune ran it, or config.yaml is not
            the config that it ran with.

    """
    if not trial.spec.exists() or not trial.provenance.exists():
        what = "the trial has not started, so it has no records."
        raise StoreError(Problem(str(trial.path), what, action="Run it first."))
    spec, origin = trial.read_spec(), read_origin(trial)
    require_current_config(trial, spec, origin)
    try:
        recorded = yaml.safe_load(trial.config.read_text(encoding="utf-8"))
        digest = config_hash(recorded, start=origin.weights_sha256 if origin else "")
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise StoreError(Problem(str(trial.config), f"cannot be read ({error}).")) from error
    if digest != spec.config_hash:
        what = f"is not the config that the trial ran with ({spec.config_hash[:10]})."
        action = "Restore the file; `--set` changes a key for a new trial."
        raise StoreError(Problem(str(trial.config), what, action=action))
    return Source(run, trial, spec, recorded, read_provenance(trial), metric, disqualified)


def spec_to_repeat(spec: TrialSpec, recorded: Mapping[str, Any], *, source: str) -> TrialSpec:
    """Return a trial with its config as recorded, to run again: no second mirror at W&B.

    A newer rltune may know more keys; they then have their defaults, and the digest says so.

    Args:
        spec: The trial.
        recorded: Its recorded config.
        source: Where that stands, for messages.

    """
    overrides = ["tracking.wandb=disabled"]
    config = derive_config(recorded, source=source, overrides=overrides, seed=None)
    return replace(spec, config=config)


def run_single(
    source: Source,
    trial: TrialDir,
    spec: TrialSpec,
    *,
    argv: tuple[str, ...],
    base: Path,
    stop_after: int | None = None,
) -> TrialStatus:
    """Run one attempt of a trial here; its log goes to standard error as well.

    The first signal asks for a checkpoint and the end; the same command then goes on.
    """
    trial.create()
    manifest = manifest_for(
        source.run,
        spec.config,
        parent=source.recorded,
        sha256=str(source.provenance.get("manifest_sha256", "")),
        base=base,
    )
    with looking_in(trial.path):
        make_references([spec.config], base)
    trial.stop.unlink(missing_ok=True)
    payload = TrialPayload(
        spec=spec,
        folder=trial.path.absolute(),
        manifest=manifest.absolute(),
        metric=source.metric,
        attempt=last_attempt(trial) + 1,
        driver=driver_provenance(argv),
        stop_file=trial.stop.absolute(),
        base=base.absolute(),
        stop_after=stop_after,
    )
    try:
        with stop_on_signal(partial(_stop, trial)), short_temporary_folder(), _echo():
            return run_trial(payload)
    finally:
        trial.stop.unlink(missing_ok=True)


def _stop(trial: TrialDir) -> None:
    """Ask the trial to stop, and say what that waits for."""
    trial.stop.touch()
    logging.getLogger("rltune.trial").info(STOPPING)


def last_attempt(trial: TrialDir) -> int:
    """Return the number of the newest attempt; 0 before the first."""
    failure = trial.read_failed()
    seen = int(read_provenance(trial).get("attempt", 0))
    return max(seen, failure.attempt if failure is not None else 0)


@contextmanager
def _echo() -> Iterator[None]:
    """Repeat the trial's own log lines on standard error, which the trial sends to its file."""
    with open(os.dup(2), "w", encoding="utf-8", buffering=1) as stream:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(_FirstLine("%(asctime)s %(message)s", "%H:%M:%S"))
        log = logging.getLogger("rltune.trial")
        log.addHandler(handler)
        try:
            yield
        finally:
            log.removeHandler(handler)


class _FirstLine(logging.Formatter):
    """Leaves out tracebacks, which are in the trial's log."""

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).partition("\n")[0]


def record_single(
    source: Source,
    trial: TrialDir,
    spec: TrialSpec,
    *,
    exp_id: str,
    hypothesis: str,
    notes: str,
    counts: bool,
    disqualified: str = "",
) -> LineageRow | None:
    """Append the lineage row of an attempt that ended, its parent the trial that it comes from.

    Args:
        source: The parent.
        trial: The folder of the attempt.
        spec: What it was asked to do.
        exp_id: Id of the row.
        hypothesis: What was asked.
        notes: More for people.
        counts: Whether it may be kept; a repetition is not a new result.
        disqualified: Why it must not count; empty when it may.

    Returns:
        The row; None when there is one of this id, or the attempt has not ended.

    """
    outcome = trial.read_done() or trial.read_failed()
    store = LineageStore(source.run.results, source.metric.name, source.metric.mode)
    if outcome is None or any(row.exp_id == exp_id for row in store.read().rows):
        return None
    context = RowContext(
        metric_name=source.metric.name,
        metric_mode=source.metric.mode,
        timestamp=utc_now(),
        commit=commit_of(trial),
        job_name=CHILD if counts else RERUN,
        snapshot_path=snapshot_of(source.run, trial),
        disqualified=source.disqualified or disqualified,
        hypothesis=hypothesis,
        notes=notes,
        wandb_id=wandb_id(spec) if counts else "",
    )

    def build(rows: tuple[LineageRow, ...]) -> LineageRow:
        row = replace(
            row_for(spec, outcome, rows, context),
            exp_id=exp_id,
            parent_exp=parent_row(rows, source.trial.trial_id),
        )
        return with_noise(row, rows, outcomes_of_run(source.run)) if counts else _uncounted(row)

    return store.record(build)


def _uncounted(row: LineageRow) -> LineageRow:
    """Return the row of a repetition: no trial of its own, no prediction, never kept."""
    row = replace(row, trial_id=row.exp_id, expected_delta="")
    if row.status not in ELIGIBLE:
        return row
    return replace(row, status=RowStatus.DISCARD, snapshot_path="")


def parent_row(rows: tuple[LineageRow, ...], trial_id: str) -> str:
    """Return the id of the newest row of a trial itself; empty when it has none yet."""
    own = [row.exp_id for row in rows if row.trial_id == trial_id]
    return own[-1] if own else ""


def child_exp_id(trial: TrialDir) -> str:
    """Return the id of the row of a child's newest attempt."""
    return exp_id_of(trial.trial_id, last_attempt(trial))
