"""How long training steps took: what tells whether a trial can finish in time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rltune.spec.identity import canonical_json
from rltune.store.jsonl import Row

_SPEED_SECTIONS = (
    "env", "policy", "rollout", "advantage", "critic", "optim", "gate", "resources",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Speed:
    """Mean seconds of a training step, its gate and checkpoint included, over so many steps."""

    step_s: float
    steps: int


def speed_key(config: Mapping[str, Any]) -> str:
    """Return what two trials must share to take the same time a step."""
    sections = {name: config[name] for name in _SPEED_SECTIONS}
    return canonical_json({**sections, "reference": config["loss"]["use_kl_loss"]})


def step_seconds(row: Row) -> float:
    """Return the seconds of one training step, its gate and checkpoint included."""
    return sum(float(value) for key, value in row.items() if key.startswith("timing_s/"))


def step_speeds(trials: Iterable[tuple[Mapping[str, Any], Iterable[Row]]]) -> dict[str, Speed]:
    """Return speed key -> mean over all training steps of the trials that share it.

    Args:
        trials: Config and rows of metrics.jsonl of each.

    """
    seconds: dict[str, list[float]] = {}
    for config, rows in trials:
        times = [step_seconds(row) for row in rows if row["step"] > 0]
        seconds.setdefault(speed_key(config), []).extend(time for time in times if time > 0)
    return {key: Speed(fmean(times), len(times)) for key, times in seconds.items() if times}
