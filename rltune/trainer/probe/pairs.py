"""Comparison of the gradients of two conditions, for S6's probe."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rltune.comparability.functional import Likeness

EXACT = 2e-5
"""Relative difference of a gradient that an estimator's float32 and its `eps` explain."""

_NOISE = 1e-7
"""What counts as 0, as a share of the largest gradient."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Gradients of one condition on one probe batch."""

    actor: tuple[Tensor, ...]  # gradient of the policy, (N, T, V), in each of its optimiser steps
    critic: tuple[Tensor, ...]  # gradient of the critic, (N, T), likewise; empty without a critic
    has_faults: bool  # whether a fault masks an episode of the batch
    tolerance: float = EXACT  # relative difference that counts as none


@dataclass(frozen=True, slots=True)
class Match:
    """Comparison of two traces."""

    is_one: bool  # whether one is a multiple of the other
    factor: float | None  # the second as a multiple of the first; None where both are 0
    tolerance: float  # within which the factor is meant
    has_faults: bool  # whether a fault masks an episode of the batch


def match(left: Trace, right: Trace) -> Match:
    """Return whether one trace is a positive multiple of the other, step by step.

    AdamW scales a policy and a critic on their own, so the critic may have a factor of its own. A
    condition without a critic can equal one with: the policy is what is compared.
    """
    actor, factor = _ratio(left.actor, right.actor, left.tolerance)
    critic = True
    if left.critic and right.critic:
        critic, _ = _ratio(left.critic, right.critic, left.tolerance)
    return Match(actor and critic, factor, left.tolerance, left.has_faults)


def _ratio(
    left: Sequence[Tensor], right: Sequence[Tensor], tolerance: float
) -> tuple[bool, float | None]:
    """Return whether `right` is a positive multiple of `left`, and which; None if both are 0."""
    if len(left) != len(right) or not left:
        return len(left) == len(right), None
    a, b = torch.stack(list(left)), torch.stack(list(right))
    if a.shape != b.shape:
        return False, None
    if not a.any() and not b.any():
        return True, None
    factor = float((a * b).sum() / (a * a).sum()) if a.any() else 0.0
    if factor <= 0:
        return False, None
    scaled = factor * a
    largest = torch.maximum(scaled.abs(), b.abs())
    allowed = tolerance * largest + _NOISE * largest.max()
    return bool(((b - scaled).abs() <= allowed).all()), factor


def likeness(a: str, b: str, matches: Iterable[Match]) -> Likeness:
    """Return what all probe batches say of two conditions.

    They are one run where every batch without a fault has the same factor. Batches with faults may
    differ all the same: `only_faults_differ`.
    """
    every = list(matches)
    factor = _common_factor([match for match in every if not match.has_faults])
    if factor is None:
        return Likeness(a, b, "different")
    is_everywhere = _common_factor(every) is not None
    return Likeness(
        a,
        b,
        "equal" if abs(factor - 1) <= EXACT else "proportional",
        factor=factor,
        only_faults_differ=not is_everywhere,
    )


def _common_factor(matches: Sequence[Match]) -> float | None:
    """Return the one factor of all matches; 1 where no batch has a gradient; None without one."""
    if not all(match.is_one for match in matches):
        return None
    known = [match for match in matches if match.factor is not None]
    if not known:
        return 1.0
    sharpest = min(known, key=lambda match: match.tolerance)
    factor = sharpest.factor or 1.0
    is_common = all(abs((m.factor or 0) / factor - 1) <= 2 * m.tolerance for m in known)
    return factor if is_common else None
