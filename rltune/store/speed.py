"""How long training steps took: what tells whether a trial can finish in time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rltune.spec.identity import canonical_json

SPEED_SECTIONS = (
    "env", "policy", "rollout", "advantage", "attribution", "critic", "optim", "gate", "resources",
)  # fmt: skip
"""Sections of a config that decide the time of a step."""
_PARTS_OF_CREDIT = ("timing_s/judge", "timing_s/judge_call")  # no part of a step beside the others


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a kind of trial is."""

    step_s: float  # mean seconds of a training step, its gate and checkpoint included
    steps: int  # steps that this is measured on
    start_s: float = 0.0  # mean seconds of what comes before the first step: the gate at step 0


def speed_key(config: Mapping[str, Any]) -> str:
    """Return what two trials must share to take the same time, or to ask the same, a step."""
    parts = {name: config[name] for name in SPEED_SECTIONS}
    parts["reference"] = config["loss"]["use_kl_loss"]
    parts["backend"] = config.get("trainer", {}).get("backend", "torch")  # old configs name none
    return canonical_json(parts)


def step_seconds(row: Mapping[str, Any]) -> float:
    """Return the seconds of one training step, its gate and checkpoint included."""
    return sum(
        float(value)
        for key, value in row.items()
        if key.startswith("timing_s/") and key not in _PARTS_OF_CREDIT
    )


def step_speeds(
    trials: Iterable[tuple[Mapping[str, Any], Iterable[Mapping[str, Any]]]],
) -> dict[str, Speed]:
    """Return speed key -> means over the trials that share it and have made a step.

    A trial is its config and its rows of metrics.jsonl.
    """
    steps: dict[str, list[float]] = {}
    starts: dict[str, list[float]] = {}
    for config, rows in trials:
        key = speed_key(config)
        for row in rows:
            if (seconds := step_seconds(row)) > 0:
                times = steps if row["step"] > 0 else starts
                times.setdefault(key, []).append(seconds)
    return {
        key: Speed(fmean(times), len(times), fmean(starts.get(key, [0.0])))
        for key, times in steps.items()
    }
