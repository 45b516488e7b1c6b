"""What trials consumed so far, from their records."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from rltune.spec.schema.run import reserved_cpus, reserved_gpus
from rltune.store.jsonl import Row
from rltune.store.service_usage import ServiceUsage
from rltune.store.speed import step_seconds

_NOTHING = ServiceUsage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Resources consumed so far."""

    wall_s: float = 0.0  # seconds of gates, training steps and checkpoints
    core_s: float = 0.0  # `wall_s` times the CPU cores that are reserved for the trial
    gpu_s: float = 0.0  # `wall_s` times the GPUs that are reserved for the trial
    rollouts: int = 0  # training episodes
    tokens: int = 0  # tokens sampled in them
    judge_calls: int = 0  # calls to a language-model judge
    judge_tokens: int = 0  # tokens of these calls
    service: ServiceUsage = _NOTHING  # asked of a training service, and its cost

    def __add__(self, other: "Cost") -> "Cost":
        """Return what both consumed."""
        return Cost(**{name: getattr(self, name) + getattr(other, name) for name in Cost.__slots__})


def total(costs: Iterable[Cost]) -> Cost:
    """Return the sum."""
    return reduce(Cost.__add__, costs, Cost())


def cost_of(
    config: Mapping[str, Any],
    rows: Sequence[Row],
    *,
    wall_s: float | None,
    service: ServiceUsage = _NOTHING,
) -> Cost:
    """Return what a trial consumed.

    Not counted: what comes before the gate at step 0, and steps that a kill lost and that were
    made again, since no record of them is left.

    Args:
        config: Its resolved config.
        rows: Its lines of metrics, oldest first.
        wall_s: Seconds in its result; None before it has one: the sum of the measured parts.
        service: What its file says that it asked of a training service, repeated steps included.

    """
    wall_s = sum(map(step_seconds, rows)) if wall_s is None else wall_s
    return Cost(
        wall_s=wall_s,
        core_s=wall_s * reserved_cpus(config),
        gpu_s=wall_s * reserved_gpus(config),
        rollouts=int(newest(rows, "budget/rollouts") or 0),
        tokens=int(newest(rows, "budget/generated_tokens") or 0),
        judge_calls=_sum(rows, "adca/judge_calls"),
        judge_tokens=_sum(rows, "adca/judge_tokens"),
        service=service,
    )


def newest(rows: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """Return the newest value of a metric; None where it was never logged."""
    return next((float(row[key]) for row in reversed(rows) if key in row), None)


def _sum(rows: Sequence[Row], key: str) -> int:
    return int(sum(float(row.get(key, 0.0)) for row in rows))
