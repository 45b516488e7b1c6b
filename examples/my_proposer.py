"""A proposer of your own: any function from what a study showed to the next sweep.

In a study file: `proposer: {kind: mine, function: examples.my_proposer:propose}`, as in
my_proposer.yaml. It is shown what a language model would be shown, and the same rules decide.
"""

from collections.abc import Mapping
from typing import Any

FACTORS = {"optim.lr": 2.0, "loss.clip_high": 1.5}
"""Knobs that are moved, one after the other, and by how much."""


def propose(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sweep over the first knob that no sweep has moved.

    Args:
        shown: Plain data: `knobs` has each knob's value in the condition to depart from, `sweeps`
            what was tried, `refused` the last proposal that did not pass and why.

    """
    moved = {sweep["axis"] for sweep in shown["sweeps"]}
    key = next(key for key in FACTORS if key not in moved)  # none left: an error, which is recorded
    control = shown["knobs"][key]
    value = control * FACTORS[key]
    return {
        "question": f"Is {key} too small at {control:g}?",
        "hypothesis": "So few steps leave the policy nearly where it began.",
        "axis": {
            "key": key,
            "values": [control, value],
            "control": control,
            "expect": {value: "+0.01"},
        },
    }
