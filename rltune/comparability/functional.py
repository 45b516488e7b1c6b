"""S6 by gradients: findings from what a probe compared. No torch.

The probe runs advantage and loss of both conditions on fixed batches (`rltune.trainer.probe.run`).
Conditions with one gradient are one run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rltune.comparability.findings import PROPORTIONAL, Finding, error, warning

REMOVE = "Remove one of them, or give them different values."
ACCEPT = (
    "Remove one of them; or accept {code} in the sweep file, with the reason why both are shown."
)


@dataclass(frozen=True, slots=True)
class Likeness:
    """What the probe says of two conditions."""

    a: str  # label of the first
    b: str  # label of the second
    # Whether the policy's gradient is equal, equal up to one positive factor, or neither, in every
    # optimiser step of every probe batch without a fault.
    kind: Literal["different", "equal", "proportional"]
    factor: float = 1.0  # the second's gradient as a multiple of the first's
    only_faults_differ: bool = False  # whether they are alike until a fault masks an episode
    # Whether they differ in what the rollout filter selects, which depends on the rewards that a
    # trial happens to earn.
    is_selection: bool = False


def likeness_findings(found: Iterable[Likeness]) -> tuple[Finding, ...]:
    """Return S6's findings: an error for one run under two names, a warning for nearly one."""
    return tuple(_finding(item) for item in found if item.kind != "different")


def _finding(item: Likeness) -> Finding:
    if item.kind == "proportional":
        return _proportional(item)
    both = f"{item.a!r} and {item.b!r}"
    if item.only_faults_differ:
        return warning(
            "S6.faults_only",
            f"{both} have the same gradient on every probe batch without a fault: they differ only "
            "in groups where a fault masks an episode.",
            ACCEPT.format(code="S6.faults_only"),
            conditions=(item.a, item.b),
        )
    if item.is_selection:
        return warning(
            "S6.same_groups",
            f"{both} learn the same from every probe batch, although their filters differ.",
            ACCEPT.format(code="S6.same_groups"),
            conditions=(item.a, item.b),
        )
    return error(
        "S6",
        f"{both} are the same run: advantage and loss give one gradient on every probe batch.",
        REMOVE,
    )


def _proportional(item: Likeness) -> Finding:
    faults = (
        " Groups where a fault masks an episode have another factor."
        if item.only_faults_differ
        else ""
    )
    return warning(
        PROPORTIONAL,
        f"The gradient of {item.b!r} is {item.factor:.6g} times that of {item.a!r} on every probe "
        "batch, and AdamW divides such a factor out: they are one run but for its rounding, and "
        f"for steps where optim.grad_clip binds in one of them alone.{faults}",
        ACCEPT.format(code=PROPORTIONAL),
        conditions=(item.a, item.b),
    )


def unproved(label: str, why: str) -> Finding:
    """Return the warning that a condition could not be probed."""
    return warning(
        "S6.unproved",
        f"The probe could not tell whether {label!r} is a run of its own: {why}",
        "Make its estimator handle every batch that a trial may have; or accept S6.unproved in the "
        "sweep file, with the reason why no trial has such a batch.",
    )


def probe_failed(why: str) -> Finding:
    """Return the error that no condition could be probed."""
    return error(
        "S6",
        f"The probe of advantage and loss ended without a verdict: {why}",
        "Fix what it names; `rltune check` without --deep compares the keys alone.",
    )


def findings_of(answer: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return the findings of the JSON that the probe's process wrote."""
    pairs = [Likeness(**item) for item in answer["pairs"]]
    return (
        *likeness_findings(pairs),
        *(unproved(label, why) for label, why in answer["failed"].items()),
    )
