"""Warnings from the metrics of a trial: cut responses, steps without a gradient."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.controllers import NO_SPREAD

CUT_SHARE = 0.8
"""Share of responses, or of episodes, cut at the first gate from which a trial warns."""

_NO_GRADIENT = 1e-12  # norms up to here are rounding
_CUT = {  # metric of a gate -> what the limit cut, and its key in `rollout`
    "heldout/clip_ratio": ("responses", "max_response_tokens"),
    "heldout/context_clip_ratio": ("responses", "max_context"),
    "heldout/out_of_context_ratio": ("episodes", "max_context"),
}

Row = Mapping[str, Any]


def trial_warnings(rows: Sequence[Row], config: TrialConfig) -> tuple[str, ...]:
    """Return the warnings of a whole trial, from its metrics in order of steps."""
    gate = next((row for row in rows if "heldout/clip_ratio" in row), {})
    steps = [row for row in rows if "rollout/in_group_reward_std" in row]
    idle = idle_warning(steps, group_size=config.rollout.group_size)
    return (*cut_warnings(gate, config), *([idle] if idle else []))


def cut_warnings(gate: Row, config: TrialConfig) -> list[str]:
    """Return which token limits cut much of the first gate, with the key to raise."""
    return [
        f"rollout.{key} ({getattr(config.rollout, key)}) cut {gate[name]:.0%} of the {what} at "
        f"the first gate: raise it, or they can hardly succeed"
        for name, (what, key) in _CUT.items()
        if gate.get(name, 0.0) >= CUT_SHARE
    ]


def idle_warning(steps: Sequence[Row], *, group_size: int) -> str:
    """Return a warning that no training step taught anything; empty when one did."""
    if not steps:
        return ""
    count = f"{len(steps)} training step{'s' if len(steps) > 1 else ''}"
    spreads = [row["rollout/in_group_reward_std"] for row in steps]
    known = [spread for spread in spreads if not math.isnan(spread)]
    is_flat = group_size > 1 and bool(known) and max(known) <= NO_SPREAD
    why = "rewards in every group were equal" if is_flat else ""
    if all(row.get("actor/grad_norm", 0.0) <= _NO_GRADIENT for row in steps):
        why = why or "nothing was trained on, or all of it had advantage 0"
        return f"no step of {count} had a gradient: {why}, and the policy is where it began"
    if is_flat:
        return (
            f"{why} in all of {count}: no response was better than another of its prompt, so what "
            "moved the policy was not the reward"
        )
    return ""
