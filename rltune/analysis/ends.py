"""How each planned trial ended: the input of every verdict."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rltune.comparability.findings import SEEDS_FOR_A_CLAIM
from rltune.comparability.records import TrialRecord
from rltune.store.failure import TrialFailure
from rltune.types import RowStatus, SeedPlan, TrialStatus

NO_VERDICT = "no verdict"


@dataclass(frozen=True, slots=True)
class End:
    """How one planned trial ended, or where it is."""

    condition: str  # its label
    is_control: bool  # whether the others are compared with it
    seed: int
    status: TrialStatus  # how it ended
    step: int  # the last training step that it reached; 0 before the first
    planned: int  # the training steps that its config asks for
    value: float | None  # the sweep's metric at its last gate; None without a finite one
    until: SeedPlan | None = None  # of its sweep: seeds until decided
    look: int | None = None  # seeds planned at the first look that counted it, if any did

    @property
    def is_short(self) -> bool:
        """Whether it has a result of fewer steps than were planned: it stopped early."""
        return self.value is not None and self.step < self.planned


def end_of(record: TrialRecord) -> End:
    """Return how a recorded trial ended."""
    result = record.result
    value = result.final_metric if result is not None else None
    return End(
        condition=record.spec.condition,
        is_control=record.spec.is_control,
        seed=record.spec.seed,
        status=_status(record),
        step=record.last_step if result is None else result.final_step,
        planned=record.planned_steps,
        value=value if value is not None and math.isfinite(value) else None,
        until=record.until,
        look=record.look,
    )


def _status(record: TrialRecord) -> TrialStatus:
    if record.result is not None:
        return record.result.status
    if record.failure is not None:
        return TrialFailure(RowStatus(record.failure["kind"]), "").trial_status
    return TrialStatus.RUNNING if record.has_started else TrialStatus.PENDING


def obstacle(ours: Sequence[End], theirs: Sequence[End], *, rival: str) -> str:
    """Return the words that stand in place of a ranking; empty when the last gates compare.

    Only results of the same training step compare. A condition of which some seeds stopped early
    or diverged is not ranked by the others either: what ended them may be the condition itself.
    """
    for who, ends in (("", ours), (f"{rival} ", theirs)):
        if reason := _diverged(ends):
            return f"{NO_VERDICT} ({who}{reason})"
    steps = {end.step for end in (*ours, *theirs) if end.value is not None}
    if len(steps) < 2:
        return ""
    if reason := _stopped(ours):
        return reason
    reason = _stopped(theirs) or f"ends at step {_span(_steps(theirs))}"
    return f"{NO_VERDICT} ({rival} {reason})"


def _steps(ends: Sequence[End]) -> list[int]:
    return sorted({end.step for end in ends if end.value is not None})


def _stopped(ends: Sequence[End]) -> str:
    """Return where trials stopped early, and how many of those with a result."""
    short = [end for end in ends if end.is_short]
    if not short:
        return ""
    share = "" if len(short) == len(ends) else f" ({len(short)} of {len(ends)} seeds)"
    return f"stopped early at {_span(_steps(short))}{share}"


def _diverged(ends: Sequence[End]) -> str:
    bad = [end for end in ends if end.status is TrialStatus.DIVERGED]
    if not bad:
        return ""
    share = "" if len(bad) == len(ends) else f" in {len(bad)} of {len(ends)} seeds"
    return f"diverged at {_span(sorted({end.step for end in bad}))}{share}"


def _span(steps: Sequence[int]) -> str:
    """Return `20`, or `20 to 35` for several."""
    return str(steps[0]) if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"


def pairs_of(ours: Sequence[End], theirs: Sequence[End]) -> dict[int, tuple[float, float]]:
    """Return seed -> (our value, their value) of the seeds that both ended at the same step."""
    known = {end.seed: end for end in theirs if end.value is not None}
    pairs = {}
    for end in ours:
        other = known.get(end.seed)
        if end.value is None or other is None or other.value is None or end.step != other.step:
            continue
        pairs[end.seed] = (end.value, other.value)
    return dict(sorted(pairs.items()))


def beside(ours: Sequence[End], theirs: Sequence[End]) -> list[End]:
    """Return the control's trials of the seeds that a condition has."""
    seeds = {end.seed for end in ours}
    return [end for end in theirs if end.seed in seeds]


def objection(ours: Sequence[End], theirs: Sequence[End], *, n: int, rival: str) -> str:
    """Return the words in place of a ranking of two sets of seeds; empty when the test decides.

    The sides are every planned trial of a condition and of its rival; n seeds are tested.
    """
    if not theirs:
        return f"{NO_VERDICT} (there is no control)"
    if reason := obstacle(ours, theirs, rival=rival):
        return reason
    needed = f"at least {SEEDS_FOR_A_CLAIM} are needed"
    planned = max(len(ours), len(theirs))
    if planned < SEEDS_FOR_A_CLAIM:
        return f"{NO_VERDICT} ({_seeds(planned)}; {needed})"
    for who, ends in (("", ours), (f" of {rival}", theirs)):
        waiting = sum(not end.status.has_ended for end in ends)
        if waiting:
            return f"{NO_VERDICT} ({len(ends) - waiting} of {_seeds(len(ends))}{who} ended)"
    if n < SEEDS_FOR_A_CLAIM:
        parts = [*_lost(ours, ""), *_lost(theirs, f" of {rival}")]
        return f"{NO_VERDICT} ({', '.join([f'{n} of {_seeds(planned)}', *parts])}; {needed})"
    return ""


def _lost(ends: Sequence[End], who: str) -> list[str]:
    """Return how many seeds have no result, and why."""
    failed = sum(end.status is TrialStatus.FAILED for end in ends)
    empty = sum(end.value is None for end in ends) - failed
    counts = [(failed, f"{who} failed"), (empty, f"{who} without a number")]
    return [f"{count}{text}" for count, text in counts if count]


def _seeds(n: int) -> str:
    return f"{n} seed{'' if n == 1 else 's'}"
