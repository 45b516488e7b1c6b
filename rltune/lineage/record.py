"""The lineage row of a trial that ended: what was tried and measured, kept or discarded."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rltune.lineage.parents import control_of, with_parent
from rltune.lineage.query import ELIGIBLE, Decision, decide_status
from rltune.lineage.row import LineageRow
from rltune.store.failure import TrialFailure
from rltune.store.files import dumps
from rltune.types import RowStatus, TrialResult, TrialSpec, TrialStatus

_RESULT_STATUS = {  # of results that are not compared with the best
    TrialStatus.STOPPED_EARLY: RowStatus.PRUNED,
    TrialStatus.DIVERGED: RowStatus.DIVERGED,
    TrialStatus.INTERRUPTED: RowStatus.PREEMPTED,
    TrialStatus.FAILED: RowStatus.CRASH,
}

RESULTS = frozenset(
    {
        *(RowStatus.KEEP, RowStatus.DISCARD, RowStatus.BASELINE),
        *(RowStatus.PRUNED, RowStatus.DISQUALIFIED),
    }
)
"""Rows of trials that ended with a result."""

FINISHED = RESULTS | {RowStatus.DIVERGED}
"""Rows of trials that are over: no launch runs them again."""

BestGate = tuple[float | None, int | None]
"""Metric and step of the gate that a trial chose; None for a metric that is not finite."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a sweep file says of itself for the lineage."""

    hypothesis: str = ""  # what is expected and why
    specialist: str = "rltune"  # who proposed it
    parent: str = ""  # row that its control departs from, `RUN/EXP_ID` or `RUN/CONDITION`


@dataclass(frozen=True, slots=True, kw_only=True)
class RowContext:
    """What a row says beyond the trial and its outcome."""

    metric_name: str  # metric of the table
    metric_mode: str  # its direction
    timestamp: str  # end of the attempt, UTC
    commit: str  # code commit, `-dirty` appended when the tree had changes
    attempt: int = 1  # which attempt of the trial ended, from 1
    job_name: str = ""  # the driver's launch
    snapshot_path: str = ""  # checkpoint that the gate chose
    disqualified: str = ""  # reason why a finished trial must not count; empty when it may
    hypothesis: str = ""  # of the sweep; behind the condition and the seed
    specialist: str = "rltune"  # who proposed the sweep
    notes: str = ""  # more for people to read
    wandb_id: str = ""  # id of the W&B run
    # row of another sweep, `RUN/EXP_ID`: the sweep's parent, or whose model the trial starts from
    grown_from: str = ""


def exp_id_of(trial_id: str, attempt: int) -> str:
    """Return the id of an attempt's row: the trial's id, with `.a2` for the second attempt."""
    return trial_id if attempt == 1 else f"{trial_id}.a{attempt}"


def row_for(
    spec: TrialSpec,
    outcome: TrialResult | TrialFailure,
    rows: Sequence[LineageRow],
    context: RowContext,
) -> LineageRow:
    """Return the row of an attempt that ended, given the rows recorded so far.

    Its parent is the finished control trial of the same sweep and seed when there is one, else the
    row of another sweep that it departs from.
    A finished control is a `baseline`; any other finished trial is kept or discarded
    against the best row so far, unless it is disqualified.
    """
    row = LineageRow(
        exp_id=exp_id_of(spec.trial_id, context.attempt),
        timestamp=context.timestamp,
        specialist=context.specialist,
        parent_exp=context.grown_from,
        domain=domain_of(spec),
        hypothesis=f"{spec.condition}, seed {spec.seed}"
        + (f": {context.hypothesis}" if context.hypothesis else ""),
        expected_delta=spec.expected_delta,
        job_name=context.job_name,
        sweep=spec.sweep,
        axis_key=spec.axis_key,
        axis_value=dumps(spec.axis_value, sort_keys=True),
        condition=spec.condition,
        seed=spec.seed,
        trial_id=spec.trial_id,
        config_hash=spec.config_hash,
        commit=context.commit,
        metric_name=context.metric_name,
        metric_mode=context.metric_mode,
        wandb_id=context.wandb_id,
        **_outcome_cells(spec, outcome, rows, context),
    )
    return with_parent(row, control_of(row, rows))


def _outcome_cells(
    spec: TrialSpec,
    outcome: TrialResult | TrialFailure,
    rows: Sequence[LineageRow],
    context: RowContext,
) -> dict[str, Any]:
    """Return the columns that say how it ended and what was measured."""
    if isinstance(outcome, TrialFailure):
        where = "before the first step" if outcome.step is None else f"at step {outcome.step}"
        return {
            "status": outcome.kind,
            "notes": _notes(f"{outcome.reason} ({where})", context.notes),
        }
    metric = finite(outcome.heldout_metric)
    decision = decide_status(metric, rows, context.metric_mode)
    status = _status(spec, outcome, decision, context)
    counts = status in ELIGIBLE or status is RowStatus.DISCARD
    complaint = "" if metric is not None else f"{context.metric_name} is {outcome.heldout_metric}"
    return {
        "status": status,
        "baseline_exp": decision.baseline_exp,
        "core_metric": metric,
        "delta_vs_best": decision.delta_vs_best if counts else None,
        "train_s": finite(outcome.train_s),
        "total_s": finite(outcome.total_s),
        "snapshot_path": context.snapshot_path if status in ELIGIBLE else "",
        "ig_mean": finite(outcome.receipts.get("ig/mean")),
        "notes": _notes(
            context.disqualified,
            outcome.reason,
            complaint,
            *outcome.warnings,
            ", ".join(f"{name} {value:.4g}" for name, value in outcome.receipts.items()),
            context.notes,
        ),
        "heldout_metric": metric,
        "pool_metric": finite(outcome.pool_metric),
        "best_step": outcome.best_step,
    }


def _status(
    spec: TrialSpec, result: TrialResult, decision: Decision, context: RowContext
) -> RowStatus:
    if result.status is not TrialStatus.DONE:
        return _RESULT_STATUS[result.status]
    if context.disqualified:
        return RowStatus.DISQUALIFIED
    return RowStatus.BASELINE if spec.is_control else decision.status


def disqualified_by(confounded: str) -> str:
    """Return why no trial of a sweep may count that ran although its proof failed; else nothing."""
    return f"confounded, run anyway: {confounded}" if confounded else ""


def best_gate(outcome: TrialResult | TrialFailure) -> BestGate | None:
    """Return metric and step of the best gate of a result; None of a failure."""
    if isinstance(outcome, TrialFailure):
        return None
    return finite(outcome.heldout_metric), outcome.best_step


def recorded_gate(row: LineageRow) -> BestGate:
    """Return what a row has of the best gate of its trial."""
    return row.core_metric, row.best_step


def domain_of(spec: TrialSpec) -> str:
    """Return the kind of env of a trial."""
    env = spec.config.get("env")
    return str(env.get("kind", "")) if isinstance(env, dict) else ""


def finite(value: float | None) -> float | None:
    """Return a number; None for one that is not finite."""
    return value if value is not None and math.isfinite(value) else None


def _notes(*parts: str) -> str:
    # A reason may quote anything a program printed; NUL and lone surrogates cannot enter the table.
    text = "; ".join(part for part in parts if part)
    return text.replace("\0", "").encode(errors="replace").decode()
