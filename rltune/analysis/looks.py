"""Seeds until decided: the looks of a sweep, from how its trials ended.

Pure functions. A look belongs to a condition and a number of planned seeds; it counts the pairs
that had ended by then, and what failed is no pair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rltune.analysis.ends import End, beside, obstacle, pairs_of
from rltune.comparability.findings import SEEDS_FOR_A_CLAIM
from rltune.maths.sequential import Decision, Look, look_at, nominal_levels
from rltune.types import SeedPlan


def looks_taken(
    ours: Sequence[End],
    theirs: Sequence[End],
    plan: SeedPlan,
    *,
    level: float,
    resolution: float,
) -> tuple[Look, ...]:
    """Return the looks that were taken at one condition, computed from its trials.

    Args:
        ours: The planned trials of the condition; each tells which look counted it first.
        theirs: Those of the control.
        plan: When to look.
        level: Two-sided error of all looks at this condition.
        resolution: Smallest step of the metric; 0 if not known.

    """
    pairs = pairs_of(ours, theirs)
    first = {end.seed: end.look for end in ours if end.look is not None and end.seed in pairs}
    samples: dict[int, list[float]] = {}  # planned -> differences; only looks that count more
    for planned in sorted(set(first.values())):
        d = [a - b for seed, (a, b) in pairs.items() if first.get(seed, plan.most + 1) <= planned]
        if len(d) >= SEEDS_FOR_A_CLAIM:
            samples[planned] = d
    if not samples:
        return ()
    boundaries = nominal_levels(
        [len(d) for d in samples.values()],
        most=plan.most,
        level=level,
        is_final=plan.most in samples,
    )
    return tuple(
        look_at(d, boundary=boundary, effect=plan.effect, resolution=resolution)
        for d, boundary in zip(samples.values(), boundaries, strict=True)
    )


@dataclass(frozen=True, slots=True)
class NextSeeds:
    """What a sweep still needs.

    Attributes:
        seeds: Condition -> how many of its seeds, in their order, are to be run by now.
        is_open: Conditions that are looked at again, once these seeds have ended.

    """

    seeds: Mapping[str, int]
    is_open: frozenset[str]


def next_seeds(
    groups: Mapping[str, Sequence[End]],
    control: str,
    plan: SeedPlan,
    looked: Mapping[str, int],
    decided: Mapping[str, Decision],
) -> NextSeeds:
    """Return how many seeds each condition is to have, and which are still open.

    A condition is closed once a look has decided it, at its last look, or when nothing can rank it:
    a trial of it, or of the control, diverged or stopped early. The control has as many seeds as
    any open condition.

    Args:
        groups: Condition -> its trials, as far as any have begun.
        control: The condition that the others are compared with.
        plan: When to look.
        looked: Condition -> seeds that were planned at its last look; none before the first.
        decided: Condition -> what its last look decided.

    """
    seeds: dict[str, int] = {}
    is_open = set()
    for label in groups:
        if label == control:
            continue
        last = looked.get(label, 0)
        following = next((count for count in plan.counts if count > last), None)
        is_done = decided.get(label, Decision.GO_ON) is not Decision.GO_ON or following is None
        if is_done or _is_unrankable(groups[label], groups[control]):
            seeds[label] = max(last, plan.start)
        else:
            seeds[label] = following or last
            is_open.add(label)
    seeds[control] = max(seeds.values(), default=plan.start)
    return NextSeeds(seeds, frozenset(is_open))


def _is_unrankable(ours: Sequence[End], theirs: Sequence[End]) -> bool:
    return bool(obstacle(ours, beside(ours, theirs), rival=""))


def is_last_look(ours: Sequence[End], theirs: Sequence[End], plan: SeedPlan) -> bool:
    """Tell whether no look follows: the last was taken, or has nothing more to count."""
    if any(end.look == plan.most for end in ours):
        return True
    counted = {end.seed for end in ours if end.look is not None}
    have_ended = all(end.status.has_ended for end in (*ours, *theirs))
    return len(ours) >= plan.most and have_ended and set(pairs_of(ours, theirs)) <= counted
