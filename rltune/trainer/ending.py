"""The end of a trial: early-stop rules, wall limits, and the result in its DONE marker."""

import math
from collections.abc import Iterator, Sequence

from rltune.errors import EvalOverrunError, TrainOverrunError, TrialError
from rltune.gate import GateResult, Mode, choose_best, fault_warnings
from rltune.spec.schema.trial import TrialConfig
from rltune.store.digest import metrics_digest
from rltune.store.jsonl import read_metrics
from rltune.store.prices import Price
from rltune.store.rundir import TrialDir
from rltune.store.service_usage import ServiceUsage, money
from rltune.trainer.checkpoint import Progress, written_weights
from rltune.trainer.records.outcomes import mean
from rltune.trainer.trial_warnings import Row, trial_warnings
from rltune.types import TrialResult, TrialStatus

POOL_STEPS = 10  # training steps whose success rates make the pool metric


def early_stop(progress: Progress, config: TrialConfig) -> str:
    """Return why a trial ends before its last step, as `rule: sentence`; empty when it goes on.

    empty_filtered_steps: `rollout_filter.empty_stop_steps` steps in a row kept nothing, so nothing
    was learned in them.
    no_spread_since_start: the first `reward_std_steps` steps had no spread of rewards in any group.
    reward_variance_collapse: the spread of rewards in a group was below `reward_std_share` of its
    mean over the first steps, `reward_std_steps` times in a row.
    heldout_collapse: the held-out success rate was below `heldout_success` at `heldout_gates` gates
    in a row.

    The second and the third are one switch, `reward_std_share`. The first and the third are
    RAGEN-2's rules, under its names. A function of the progress alone: a trial that was killed
    after such a step stops there again.
    """
    is_last = progress.step >= config.budget.steps
    return "" if is_last else next(_stop_reasons(progress, config), "")


def _stop_reasons(progress: Progress, config: TrialConfig) -> Iterator[str]:
    rule, spread = config.early_stop, progress.controllers.spread
    n_empty = progress.consecutive_empty
    if n_empty >= config.rollout_filter.empty_stop_steps:
        yield (
            f"empty_filtered_steps: the rollout filter kept nothing in {n_empty} steps in a row "
            "(rollout_filter.empty_stop_steps)"
        )
    share = rule.reward_std_share
    if share is not None and spread.n_flat >= rule.reward_std_steps:
        yield (
            f"no_spread_since_start: rewards in every group were equal in all {spread.n_flat} "
            "steps since the start, so no response was better than another "
            "(early_stop.reward_std_share)"
        )
    if share is not None and spread.n_low >= rule.reward_std_steps:
        yield (
            f"reward_variance_collapse: rewards in a group spread less than {share:g} of the start "
            f"in {spread.n_low} steps in a row (early_stop.reward_std_share)"
        )
    success, recent = rule.heldout_success, progress.gates[-rule.heldout_gates :]
    if success is None or len(recent) < rule.heldout_gates:
        return
    if all(not gate.is_lost and gate.successes < success * gate.n for gate in recent):
        yield (
            f"heldout_collapse: held-out success was below {success:g} at {len(recent)} gates in a "
            "row (early_stop.heldout_success)"
        )


def overrun(progress: Progress, config: TrialConfig, *, eval_s: float) -> TrialError | None:
    """Return the error of a trial that exceeded a wall limit; None when it did not.

    `eval_s` are the seconds of the last gate of this attempt; 0 before the first.
    """
    budget, train_s = config.budget, progress.train_s
    where = _where(progress, config)
    limit = budget.train_wall_s
    if limit is not None and train_s > limit:
        what = f"training took {train_s:.1f} s, more than budget.train_wall_s ({limit:g})"
        return TrainOverrunError(f"{what}, {where}")
    limit = budget.eval_wall_s
    if limit is not None and eval_s > limit:
        what = f"a gate took {eval_s:.1f} s, more than budget.eval_wall_s ({limit:g})"
        return EvalOverrunError(f"{what}, {where}")
    return None


def overspent(
    usage: ServiceUsage, price: Price | None, progress: Progress, config: TrialConfig
) -> TrialError | None:
    """Return the error of a trial that asked more of a service than it may; None if it did not.

    Args:
        usage: What all attempts asked for.
        price: Of the service; its currency is that of the limit.
        progress: Of the trial.
        config: Of the trial.

    """
    limits, paid = config.trainer, usage.paid.get(price.currency, 0.0) if price else 0.0
    if limits.max_requests is not None and usage.requests >= limits.max_requests:
        most = f"trainer.max_requests ({limits.max_requests:,})"
        what = f"{usage.requests:,} calls to the service reach {most}"
        return TrainOverrunError(f"{what}, {_where(progress, config)}")
    if limits.max_cost is not None and price is not None and paid >= limits.max_cost:
        most = f"trainer.max_cost ({limits.max_cost:g})"
        what = f"the service cost {money({price.currency: paid})}, which reaches {most}"
        return TrainOverrunError(f"{what}, {_where(progress, config)}")
    return None


def _where(progress: Progress, config: TrialConfig) -> str:
    return (
        f"at step {progress.step} of {config.budget.steps}. The checkpoint is kept: with a higher "
        "limit the same command goes on"
    )


def early_stop_metrics(reason: str) -> dict[str, float]:
    """Return what the last metrics row says about an early stop; empty without one."""
    return {f"early_stopped/{reason.partition(':')[0]}": 1.0} if reason else {}


def trial_result(
    trial: TrialDir, config: TrialConfig, progress: Progress, *, mode: Mode, reason: str
) -> TrialResult:
    """Return the result of a trial whose last gate is in its progress.

    `reason` says why it stopped early; empty when it reached its last step.
    """
    best = choose_best(progress.gates, mode=mode)
    rows = read_metrics(trial.metrics).rows
    return TrialResult(
        trial_id=trial.trial_id,
        status=TrialStatus.STOPPED_EARLY if reason else TrialStatus.DONE,
        reason=reason,
        final_step=progress.step,
        best_step=best.step,
        heldout_metric=_counted(best),
        base_metric=_counted(progress.gates[0]),
        final_metric=_counted(progress.gates[-1]),
        pool_metric=_pool_metric(rows),
        metrics_sha256=metrics_digest(trial.metrics),
        train_s=progress.train_s,
        total_s=progress.total_s,
        budget={
            "rollouts": float(progress.rollouts),
            "generated_tokens": float(progress.generated_tokens),
            "optimizer_steps": float(progress.optimizer_steps),
            "policy_updates": float(progress.policy_updates),
            "critic_updates": float(progress.critic_updates),
        },
        receipts=_receipts(rows),
        warnings=(*fault_warnings(progress.gates, mode=mode), *trial_warnings(rows, config)),
        weights_sha256=written_weights(trial.checkpoint(best.step)),
    )


def _counted(gate: GateResult) -> float:
    """Return the metric of a gate; NaN where faults took too many tasks."""
    return math.nan if gate.is_lost else gate.metric


def _receipts(rows: Sequence[Row]) -> dict[str, float]:
    """Return the mean over all steps of each metric of the information gain, `ig/*`."""
    names = sorted({name for row in rows for name in row if name.startswith("ig/")})
    return {name: mean(float(row[name]) for row in rows if name in row) for name in names}


def _pool_metric(rows: Sequence[Row]) -> float:
    """Return the mean of the last success rates; a step of faults has none."""
    name = "rollout/success_rate"
    recent = [float(row[name]) for row in rows if name in row][-POOL_STEPS:]
    return mean(rate for rate in recent if not math.isnan(rate))
