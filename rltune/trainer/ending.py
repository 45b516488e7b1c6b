"""How a trial ends: the rule that stops one early, and the result that its DONE marker holds."""

from rltune.gate import Mode, choose_best
from rltune.spec.schema import TrialConfig
from rltune.store.digest import metrics_digest
from rltune.store.jsonl import read_metrics
from rltune.store.rundir import TrialDir
from rltune.trainer.checkpoint import Progress
from rltune.types import TrialResult, TrialStatus

POOL_STEPS = 10  # training steps whose success rates make the pool metric


def early_stop(progress: Progress, config: TrialConfig) -> str:
    """Return why a trial ends before its last step, as `rule: sentence`; empty when it goes on.

    empty_filtered_steps: `rollout_filter.empty_stop_steps` steps in a row kept nothing, so nothing
    was learned in them. (RAGEN-2's rule of the same name.)

    A function of the progress alone: a trial that was killed after such a step stops there again.
    """
    limit = config.rollout_filter.empty_stop_steps
    if progress.step >= config.budget.steps or progress.consecutive_empty < limit:
        return ""
    return (
        f"empty_filtered_steps: the rollout filter kept nothing in {progress.consecutive_empty} "
        "steps in a row (rollout_filter.empty_stop_steps)"
    )


def early_stop_metrics(reason: str) -> dict[str, float]:
    """Return what the last metrics row says about an early stop; empty without one."""
    return {f"early_stopped/{reason.partition(':')[0]}": 1.0} if reason else {}


def trial_result(trial: TrialDir, progress: Progress, *, mode: Mode, reason: str) -> TrialResult:
    """Return the result of a trial whose last gate is in its progress.

    Args:
        trial: Holds the metrics.
        progress: At the end.
        mode: Direction of the gate's metric.
        reason: Why it stopped early; empty when it reached its last step.

    """
    best = choose_best(progress.gates, mode=mode)
    return TrialResult(
        trial_id=trial.trial_id,
        status=TrialStatus.STOPPED_EARLY if reason else TrialStatus.DONE,
        reason=reason,
        final_step=progress.step,
        best_step=best.step,
        heldout_metric=best.metric,
        base_metric=progress.gates[0].metric,
        final_metric=progress.gates[-1].metric,
        pool_metric=_pool_metric(trial),
        metrics_sha256=metrics_digest(trial.metrics),
        train_s=progress.train_s,
        total_s=progress.total_s,
        budget={
            "rollouts": float(progress.rollouts),
            "generated_tokens": float(progress.generated_tokens),
            "optimizer_steps": float(progress.optimizer_steps),
        },
    )


def _pool_metric(trial: TrialDir) -> float:
    name = "rollout/success_rate"
    rows = read_metrics(trial.metrics).rows
    recent = [float(row[name]) for row in rows if name in row][-POOL_STEPS:]
    return sum(recent) / max(1, len(recent))
