"""A model over its generations: each beside the one before, on the same tasks.

Held-out numbers come from the gates of the trials. The gate chose each checkpoint on these very
tasks, so they are optimistic, and no child can end below its start. Fresh tasks played no part in
any training or choice of the chain; `rltune.trainer.models.fresh` plays them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance
from typing import Any

from rltune.gate import wilson_interval
from rltune.lineage.generations import Generation, Generations
from rltune.lineage.noise import Outcomes, difference_interval, outcomes_at, scores_of
from rltune.maths.interval import Interval

START = "start"
"""Name of generation 0: what the oldest trial began with."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A mean over tasks with its 95 % interval: Wilson's for successes, else normal."""

    tasks: int
    value: float
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Beside:
    """A generation and the one before.

    Attributes:
        tasks: That both have an outcome of; of this generation where they played other tasks.
        before: Mean of the one before.
        after: Mean of this one.
        interval: 95 % interval of after - before, over tasks; None with too few.
        is_paired: Whether both played the same tasks.

    """

    tasks: int
    before: float
    after: float
    interval: Interval | None
    is_paired: bool

    @property
    def difference(self) -> float:
        """This generation minus the one before."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class GenerationRow:
    """One generation of the chart.

    Attributes:
        number: 0 is what the oldest trial began with.
        name: Its row, as `RUN/EXP_ID`; `start` for 0.
        step: The training step of its checkpoint.
        departs: `model`, or `settings`: what it took from the one before; empty for 0.
        heldout: Beside the one before on the frozen held-out tasks; None where unknown.
        fresh: On the fresh tasks; None where they were not played.
        fresh_beside: Beside the one before on these.

    """

    number: int
    name: str
    step: int
    departs: str
    heldout: Beside | None
    fresh: Measured | None
    fresh_beside: Beside | None


@dataclass(frozen=True, slots=True)
class GenerationTable:
    """The generations of one model, oldest first.

    Attributes:
        metric: What is measured.
        mode: `max` or `min`.
        rows: One a generation.
        missing: The parent that is named and cannot be found; empty for none.
        fresh_looks: How often fresh tasks were played for this chain.

    """

    metric: str
    mode: str
    rows: tuple[GenerationRow, ...]
    missing: str
    fresh_looks: int


def generation_table(found: Generations, fresh: Mapping[str, Any] | None) -> GenerationTable:
    """Return the table of a chain.

    Args:
        found: The chain.
        fresh: What playing the fresh tasks recorded; None where nobody did.

    """
    oldest, youngest = found.chain[0], found.chain[-1]
    metric = youngest.row.metric_name
    played = _played(fresh, metric)
    names = [(START, 0), *((one.name, one.step) for one in found.chain)]
    rows = [GenerationRow(0, START, 0, "", None, _measured(played.get(names[0])), None)]
    before: Generation | None = None
    for i, one in enumerate(found.chain, start=1):
        ours, theirs = played.get(names[i]), played.get(names[i - 1])
        rows.append(
            GenerationRow(
                number=i,
                name=one.name,
                step=one.step,
                departs="model" if one is oldest or one.has_model_of_parent else "settings",
                heldout=_beside(*_heldout(one, before, metric)),
                fresh=_measured(ours),
                fresh_beside=_beside(ours, theirs),
            )
        )
        before = one
    looks = int(fresh["looks"]) if fresh else 0
    return GenerationTable(metric, youngest.row.metric_mode, tuple(rows), found.missing, looks)


def _heldout(
    one: Generation, before: Generation | None, metric: str
) -> tuple[Outcomes | None, Outcomes | None]:
    """Return what a generation and the one before did on its held-out tasks.

    The gate before its first step is the one before, where it starts from that model.
    """
    ours = outcomes_at(one.trial, one.step, metric)
    if before is None or one.has_model_of_parent:
        return ours, outcomes_at(one.trial, 0, metric)
    return ours, outcomes_at(before.trial, before.step, metric)


def _played(fresh: Mapping[str, Any] | None, metric: str) -> dict[tuple[str, int], Outcomes]:
    """Return (name, step) -> outcomes on the fresh tasks."""
    found = {}
    for gate in fresh["generations"] if fresh else ():
        if (scores := scores_of(gate, metric)) is not None:
            found[gate["name"], gate["step"]] = Outcomes(gate["tasks_sha256"], tuple(scores))
    return found


def _beside(ours: Outcomes | None, theirs: Outcomes | None) -> Beside | None:
    if ours is None or theirs is None:
        return None
    is_paired = ours.tasks == theirs.tasks and len(ours.values) == len(theirs.values)
    after, before = list(_known(ours)), list(_known(theirs))
    if is_paired:
        both = zip(ours.values, theirs.values, strict=True)
        pairs = [(a, b) for a, b in both if a is not None and b is not None]
        after, before = [a for a, _ in pairs], [b for _, b in pairs]
    if not after or not before:
        return None
    interval = difference_interval(ours, theirs)
    return Beside(len(after), fmean(before), fmean(after), interval, is_paired)


def _measured(outcomes: Outcomes | None) -> Measured | None:
    values = list(_known(outcomes)) if outcomes else []
    if not values:
        return None
    return Measured(len(values), fmean(values), _interval(values))


def _interval(values: Sequence[float]) -> Interval | None:
    n = len(values)
    if all(value in (0.0, 1.0) for value in values):
        return wilson_interval(int(sum(values)), n)
    if n < 2:
        return None
    half = NormalDist().inv_cdf(0.975) * math.sqrt(variance(values) / n)
    return Interval(fmean(values) - half, fmean(values) + half)


def _known(outcomes: Outcomes) -> Iterator[float]:
    return (value for value in outcomes.values if value is not None)
