"""The recorder of a sweep writes ledger and lineage, both derived from the trials' own files.

Reconciling is idempotent and needs nothing but the files, so a driver may die at any point: the
next one records what this one left.
"""

import os
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rltune.errors import StoreError
from rltune.lineage.across import parent_row
from rltune.lineage.noise import outcomes_of_run, with_noise
from rltune.lineage.record import (
    RESULTS,
    BestGate,
    Proposal,
    RowContext,
    best_gate,
    exp_id_of,
    recorded_gate,
    row_for,
)
from rltune.lineage.share import require_rankable, share
from rltune.lineage.table import LineageStore
from rltune.runner.trial import LOCK_S, steps_done
from rltune.spec.trial_reference import looking_in
from rltune.store.failure import TrialFailure, failure_kind
from rltune.store.files import utc_now
from rltune.store.ledger import Ledger, LedgerEvent, TrialLedger
from rltune.store.lock import file_lock
from rltune.store.provenance import base_of_trial, read_provenance
from rltune.store.rundir import RunDir, TrialDir
from rltune.store.service_usage import known_usage
from rltune.track.make import wandb_id
from rltune.trainer.models.references import grown_from
from rltune.types import RowStatus, TrialResult, TrialSpec, TrialStatus

_END_EVENTS = {
    TrialStatus.FAILED: LedgerEvent.FAILED,
    TrialStatus.DIVERGED: LedgerEvent.DIVERGED,
    TrialStatus.INTERRUPTED: LedgerEvent.INTERRUPTED,
}


@dataclass(frozen=True)
class Recorder:
    """Writes ledger and lineage of one launch. Only the holder of the driver lock may.

    A launch that follows in the same command goes on with a copy under its own name.
    """

    run: RunDir  # the sweep's folder
    launch: str  # name of this launch
    lineage: LineageStore  # the lineage table
    commit: str  # code of the driver, for trials that died before they recorded theirs
    disqualified: str  # why no finished trial of this launch may count; empty when they may
    # A table beyond this sweep that gets a copy of every row; None without one
    shared: LineageStore | None = None
    proposal: Proposal = field(default_factory=Proposal)
    _recorded: set[str] = field(default_factory=set)
    _results: dict[str, BestGate] = field(default_factory=dict)  # trial -> what it has in the table
    _awaited: dict[int, str] = field(default_factory=dict)  # seed -> row of its control

    @property
    def ledger(self) -> Ledger:
        """The ledger."""
        return Ledger(self.run.ledger)

    def reconcile_all(self, specs: Sequence[TrialSpec]) -> None:
        """Record all that earlier launches left unrecorded, also of trials not asked for now.

        An attempt that was started and whose driver died without seeing its end is `lost`.
        """
        for row in self.lineage.read().rows:
            self._recorded.add(row.exp_id)
            if row.status in RESULTS:
                self._results[row.trial_id] = recorded_gate(row)
        asked = {spec.trial_id: spec for spec in specs}
        known = {**self._earlier_specs(besides=asked), **asked}
        for trial in self.ledger.read().open_trials:
            if trial.trial_id in known:
                self._wait_for_worker(trial.trial_id)
        self.reconcile(known.values())
        for trial in self.ledger.read().trials.values():
            is_lost = trial.is_open or trial.last.event is LedgerEvent.LOST
            if is_lost and trial.trial_id in known:
                self._fail_lost(known[trial.trial_id], trial)
        self.ledger.close_lost(launch=self.launch)
        self.share()

    def expect(self, attempts: Iterable[tuple[TrialSpec, int]]) -> None:
        """Note the attempts of this launch: results of a seed wait for the row of its control.

        The best at record time must not depend on who ends first. Should the driver die,
        `reconcile_all` writes them. A failure does not wait: the next attempt clears its marker.
        """
        self._awaited.update(
            {
                spec.seed: exp_id_of(spec.trial_id, attempt)
                for spec, attempt in attempts
                if spec.is_control
            }
        )

    def reconcile(self, specs: Iterable[TrialSpec]) -> None:
        """Record what the files of these trials say and ledger and lineage do not say yet.

        Results that wait for a control are left for later.
        """
        entries = self.ledger.read().trials
        for spec in sorted(specs, key=lambda spec: not spec.is_control):
            self._reconcile_trial(spec, entries.get(spec.trial_id))

    def close(self, specs: Iterable[TrialSpec]) -> None:
        """Record these trials when the launch is over: rows wait for no control any more."""
        self._awaited.clear()
        self.reconcile(specs)
        self.share()

    def share(self) -> None:
        """Copy the rows that the shared table lacks. Called when a launch begins and when it ends.

        What a dead driver did not copy the next one does.
        """
        if self.shared is not None:
            share(self.lineage.read_written().rows, self.shared, self.run.path.name)

    def mark_failed(
        self, spec: TrialSpec, *, attempt: int, reason: str, is_preempted: bool
    ) -> None:
        """Write the FAILED marker of a process that died without writing one.

        It is preempted, not crashed, if the sweep was being stopped or if its machine went too: the
        same command goes on with it.
        """
        trial = self.run.trial(spec.trial_id).create()
        failure = trial.read_failed()
        if trial.read_done() is not None or (failure is not None and failure.attempt == attempt):
            return
        step = steps_done(trial)
        kind = RowStatus.PREEMPTED if is_preempted else failure_kind(RuntimeError(), step=step)
        trial.clear_failed()
        trial.write_failed(TrialFailure(kind, reason, "", step, attempt))

    def _earlier_specs(self, *, besides: Container[str]) -> dict[str, TrialSpec]:
        """Return the other trials here. One whose spec is torn waits until it is asked for."""
        specs = {}
        for trial in self.run.trial_dirs():
            if trial.trial_id in besides or not trial.spec.is_file():
                continue
            with suppress(StoreError):
                specs[trial.trial_id] = trial.read_spec()
        return specs

    def _reconcile_trial(self, spec: TrialSpec, entry: TrialLedger | None) -> None:
        trial = self.run.trial(spec.trial_id)
        if not trial.path.is_dir():
            return
        seen = entry.attempts if entry else 0
        attempt = int(read_provenance(trial).get("attempt", 0))
        outcome: TrialResult | TrialFailure | None = trial.read_done()
        if outcome is None:
            failure = trial.read_failed()
            if failure is not None and failure.attempt >= attempt:
                outcome, attempt = failure, failure.attempt
        known = entry.last if entry is not None and entry.last.attempt == attempt else None
        launch = known.launch if known is not None else self.launch
        is_open = known is not None and known.event is LedgerEvent.STARTED
        if attempt > seen:
            self.ledger.log(spec.trial_id, LedgerEvent.STARTED, attempt=attempt, launch=self.launch)
            is_open = True
        if outcome is None:
            return
        self._record(spec, outcome, attempt=attempt, launch=launch)
        if is_open:
            event, reason = _end_of(outcome)
            self.ledger.log(
                spec.trial_id, event, attempt=attempt, launch=self.launch, reason=reason
            )

    def _wait_for_worker(self, trial_id: str) -> None:
        """Wait until the dead driver's worker is gone: it may still write its marker."""
        trial = self.run.trial(trial_id)
        if trial.path.is_dir():
            with file_lock(trial.lock, timeout_s=LOCK_S):
                pass

    def _fail_lost(self, spec: TrialSpec, entry: TrialLedger) -> None:
        attempt = entry.last.attempt
        trial = self.run.trial(spec.trial_id)
        if exp_id_of(spec.trial_id, attempt) in self._recorded:
            return
        by = entry.last.launch if entry.is_open else "an earlier launch"
        reason = f"lost: the driver of {by} died before this attempt ended"
        failure = TrialFailure(RowStatus.PREEMPTED, reason, "", steps_done(trial), attempt)
        if trial.path.is_dir():  # first: the next driver writes the row from it
            trial.write_failed(failure)
        self._record(spec, failure, attempt=attempt, launch=entry.last.launch)

    def _record(
        self, spec: TrialSpec, outcome: TrialResult | TrialFailure, *, attempt: int, launch: str
    ) -> None:
        """Append the lineage row of an attempt unless there is one.

        A trial whose marker was lost ends again with the same numbers, and has its row. With other
        numbers it gets another one.
        """
        name = exp_id_of(spec.trial_id, attempt)
        best = best_gate(outcome)
        must_wait = best is not None and self._must_wait(spec)
        is_known = spec.trial_id in self._results and best in (None, self._results[spec.trial_id])
        if name in self._recorded or is_known or must_wait:
            return
        trial = self.run.trial(spec.trial_id)
        context = RowContext(
            metric_name=self.lineage.metric_name,
            metric_mode=self.lineage.metric_mode,
            timestamp=_ended_at(trial),
            commit=commit_of(trial) or self.commit,
            attempt=attempt,
            job_name=launch,
            snapshot_path=snapshot_of(self.run, trial),
            disqualified=self.disqualified,
            wandb_id=wandb_id(spec),
            notes=known_usage(trial.service).text,
            hypothesis=self.proposal.hypothesis,
            specialist=self.proposal.specialist,
            grown_from=self._parent(trial, spec),
        )
        outcomes_of = outcomes_of_run(self.run)
        self.lineage.record(
            lambda rows: with_noise(row_for(spec, outcome, rows, context), rows, outcomes_of)
        )
        self._recorded.add(name)
        if best is not None:
            self._results[spec.trial_id] = best

    def _parent(self, trial: TrialDir, spec: TrialSpec) -> str:
        """Return the row of another sweep that a trial departs from; empty without one."""
        if spec.is_control and self.proposal.parent:
            return parent_row(self.run.path.parent, self.proposal.parent, spec.seed)
        return _grown_from(trial, spec)

    def _must_wait(self, spec: TrialSpec) -> bool:
        control = self._awaited.get(spec.seed)
        return control is not None and control not in self._recorded and not spec.is_control


def _end_of(outcome: TrialResult | TrialFailure) -> tuple[LedgerEvent, str]:
    if isinstance(outcome, TrialResult):
        return _END_EVENTS.get(outcome.status, LedgerEvent.DONE), outcome.reason
    return _END_EVENTS[outcome.trial_status], outcome.reason


def _ended_at(trial: TrialDir) -> str:
    """Return when the trial last wrote something that counts."""
    paths = (trial.done, trial.failed, trial.metrics, trial.provenance)
    times = [path.stat().st_mtime for path in paths if path.exists()]
    if not times:
        return utc_now()
    return datetime.fromtimestamp(max(times), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _grown_from(trial: TrialDir, spec: TrialSpec) -> str:
    """Return the row of another sweep that a trial's model comes from; empty without one."""
    with looking_in(trial.path):
        return grown_from(spec.config, base_of_trial(trial))


def commit_of(trial: TrialDir) -> str:
    """Return the commit that a trial's newest attempt ran, with `-dirty` where it had changes."""
    origin: Mapping[str, object] = read_provenance(trial)
    commit = str(origin.get("commit", ""))
    return f"{commit}-dirty" if commit and origin.get("dirty") else commit


def snapshot_of(run: RunDir, trial: TrialDir) -> str:
    """Return the checkpoint that the gate chose, relative to the run folder, which may be moved."""
    link = trial.best_heldout
    return os.path.relpath(link.resolve(), run.path.resolve()) if link.exists() else ""


def open_recorder(
    run: RunDir,
    *,
    launch: str,
    metric: tuple[str, str],
    commit: str,
    disqualified: str,
    shared: Path | None = None,
    domains: Iterable[str] = (),
    proposal: Proposal | None = None,
) -> Recorder:
    """Return the recorder of a run folder for one launch.

    Args:
        run: The run folder.
        launch: Name of the launch.
        metric: Name and direction.
        commit: Code of the driver.
        disqualified: Why no finished trial may count; empty when they may.
        shared: Table beyond this sweep that gets a copy of every row.
        domains: Kinds of env of the sweep; a shared table holds one.
        proposal: What the sweep file says of itself.

    Raises:
        StoreError: The lineage table there, or the shared one, holds another metric; the shared
            one holds another kind of env.

    """
    name, mode = metric
    table = None
    if shared is not None:
        table = LineageStore(shared, name, mode)
        require_rankable(table, domains)
    own = LineageStore(run.results, name, mode)
    return Recorder(run, launch, own, commit, disqualified, table, proposal or Proposal())
