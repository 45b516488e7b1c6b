"""What the seeds of a sweep can show: the smallest effect, and the seeds that an effect needs.

The test is that of the verdict: its strictest level (Holm's first step; with seeds until decided
the share of each condition), and 80 % power.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rltune.analysis.ends import End
from rltune.analysis.pilot import Pilot, block_of, second_names
from rltune.analysis.verdict_words import LEVEL, SAME, Verdict
from rltune.comparability.findings import SEEDS_FOR_A_CLAIM
from rltune.maths.interval import Interval
from rltune.maths.power import seeds_for_power, size_for_power
from rltune.maths.sequential import nominal_levels
from rltune.maths.sequential_power import Expected, detectable, expected, seeds_for_looks
from rltune.maths.spread import Spread, paired_spread
from rltune.spec.load import LoadedSweep
from rltune.types import SeedPlan

POWER = 0.8
OTHER_SEEDS = (3, 5, 8, 12, 20)
"""Numbers of seeds that a plan is compared with."""


@dataclass(frozen=True, slots=True)
class Design:
    """How many seeds a sweep plans, and how it tests them.

    Attributes:
        seeds: Of a condition; at most, with seeds until decided.
        comparisons: Conditions that are compared with the control.
        until: When it looks; None for a fixed number of seeds.

    """

    seeds: int
    comparisons: int
    until: SeedPlan | None = None

    @property
    def level(self) -> float:
        """Two-sided error of one comparison."""
        return LEVEL / self.comparisons

    @property
    def boundaries(self) -> tuple[float, ...]:
        """The p at which each look decides; empty without looks."""
        if self.until is None:
            return ()
        return nominal_levels(self.until.counts, most=self.until.most, level=self.level)


def design_of(loaded: LoadedSweep) -> Design:
    """Return the design that a sweep file asks for."""
    return Design(len(loaded.seeds), max(1, len(loaded.conditions) - 1), loaded.until)


def smallest_size(design: Design) -> float | None:
    """Return the smallest effect that is seen with 80 % power, in standard deviations.

    None where no number of standard deviations is enough: too few seeds for a claim.
    """
    if design.until is not None:
        plan = design.until
        return detectable(counts=plan.counts, most=plan.most, level=design.level, power=POWER)
    if design.seeds < SEEDS_FOR_A_CLAIM:
        return None
    return size_for_power(design.seeds, power=POWER, level=design.level)


def seeds_needed(design: Design, size: float) -> int | None:
    """Return the seeds to plan, so that an effect of this size is seen with 80 % power.

    Looks begin and go on as in the design; the answer is the most seeds. None beyond what a sweep
    can have.
    """
    if design.until is None:
        return seeds_for_power(size, 1.0, power=POWER, level=design.level, least=SEEDS_FOR_A_CLAIM)
    start, block = design.until.start, design.until.block
    return seeds_for_looks(size, start=start, block=block, level=design.level, power=POWER)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a number of seeds shows.

    Attributes:
        seeds: Of a condition; at most, with looks.
        size: Smallest effect, in standard deviations of the paired differences.
        effect: The same in the metric's unit; None without a pilot.
        interval: Of that, from the interval of the spread.

    """

    seeds: int
    size: float
    effect: float | None
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Needed:
    """The seeds that an effect of interest needs.

    Attributes:
        effect: In the metric's unit.
        seeds: Of a condition; None where more than a sweep can have.
        fewest: The same at the lower end of the spread's interval.
        most: At its upper end.

    """

    effect: float
    seeds: int | None
    fewest: int | None
    most: int | None


@dataclass(frozen=True, slots=True)
class PowerPlan:
    """What a sweep's seeds can show, before it runs.

    Attributes:
        design: Its seeds and its test.
        planned: What they show; None where they are too few for a claim.
        others: What other numbers of seeds would show; empty with looks.
        needed: Seeds for the effect of interest; None without one or without a pilot.
        expected: With looks and an effect of interest: true effect -> how a condition would end.
        pilot: Where the spread is from.

    """

    design: Design
    planned: Shown | None
    others: tuple[Shown, ...]
    needed: Needed | None
    expected: Mapping[float, Expected]
    pilot: Pilot


def power_plan(design: Design, pilot: Pilot, *, effect: float | None) -> PowerPlan:
    """Return what a design can show, and the seeds that an effect of interest needs."""
    others = [n for n in OTHER_SEEDS if n != design.seeds] if design.until is None else []
    shown = [_shown(Design(n, design.comparisons), pilot.spread) for n in others]
    spread = pilot.spread
    return PowerPlan(
        design=design,
        planned=_shown(design, spread),
        others=tuple(one for one in shown if one is not None),
        needed=_needed(design, effect, spread) if effect and spread else None,
        expected=_expected(design, effect, spread) if effect and spread else {},
        pilot=pilot,
    )


def _shown(design: Design, spread: Spread | None) -> Shown | None:
    size = smallest_size(design)
    if size is None:
        return None
    if spread is None:
        return Shown(design.seeds, size, None, None)
    around = Interval(size * spread.interval.low, size * spread.interval.high)
    return Shown(design.seeds, size, size * spread.value, around)


def _needed(design: Design, effect: float, spread: Spread) -> Needed:
    def at(width: float) -> int | None:
        return seeds_needed(design, effect / width)

    return Needed(effect, at(spread.value), at(spread.interval.low), at(spread.interval.high))


def _expected(design: Design, effect: float, spread: Spread) -> dict[float, Expected]:
    """Return how looks end where there is no effect, and where there is the one of interest."""
    plan, margin = design.until, effect / spread.value
    if plan is None:
        return {}
    return {
        true: expected(
            true / spread.value,
            counts=plan.counts,
            most=plan.most,
            level=design.level,
            margin=margin,
        )
        for true in (0.0, effect)
    }


def closing_power(
    ends: Sequence[End],
    found: Sequence[Verdict],
    *,
    one_runs: Iterable[Sequence[str]],
    resolution: float,
) -> str:
    """Return what the seeds of a sweep could show; empty where every condition is decided.

    Args:
        ends: How its planned trials ended.
        found: The verdict about each condition but the control.
        one_runs: Pairs of conditions that were one run under two names (A7); nothing spreads
            between them.
        resolution: Smallest step of the metric; 0 if not known.

    """
    open_ones = [one for one in found if one.word == SAME]
    if not open_ones:
        return ""
    control = next((end.condition for end in ends if end.is_control), "")
    again = second_names(one_runs, control)
    block = block_of([end for end in ends if end.condition not in again])
    seeds = min(one.n for one in open_ones)
    design = Design(seeds, open_ones[0].comparisons, ends[0].until)
    return undecided(design, paired_spread([block], resolution=resolution))


def undecided(design: Design, spread: Spread | None) -> str:
    """Return what seeds that separated nothing could show; empty where nothing is known of it.

    Args:
        design: With the seeds that conditions have which are not separable.
        spread: Of this sweep.

    """
    if design.until is not None:  # seeds that failed were no part of its looks
        start = min(design.until.start, design.seeds)
        design = replace(design, until=replace(design.until, start=start, most=design.seeds))
    shown = _shown(design, spread)
    if shown is None or shown.effect is None or shown.interval is None:
        return ""
    seeds = f"at most {shown.seeds}" if design.until else f"{shown.seeds}"
    around = f"{shown.interval.low:.3g} to {shown.interval.high:.3g}"
    return (
        f"Not separable is not equal: {seeds} seeds show a difference of {shown.effect:.3g} or "
        f"more with 80 % power ({around}, as far as the spread is known)."
    )
