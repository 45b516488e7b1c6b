"""The one verdict: does a condition end above or below the control of its sweep?

Paired over seeds at the last gate, Student's t test, its p adjusted by Holm over the conditions of
the sweep. The terminal, the tables, figures, HTML, `compare` and the API say what stands here, in
these words. Two other questions are answered elsewhere: whether two single trials differ by more
than the luck of their held-out tasks (`rltune.analysis.compare`), and whether a trial beats the
best of the lineage by more than that (`rltune.lineage.noise`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import stdev

from rltune.analysis.ends import End, obstacle, pairs_of
from rltune.analysis.stats import Estimate, mean_over_seeds
from rltune.comparability.findings import SEEDS_FOR_A_CLAIM
from rltune.maths.power import seeds_for_power
from rltune.maths.significance import holm, paired_t_p
from rltune.types import TrialStatus

LEVEL = 0.05
"""A claim is made when the adjusted p is below this."""

ABOVE, BELOW, SAME = "above", "below", "not separable"
NO_VERDICT = "no verdict"
CONTROL = "the control"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The claim that the data allow about one condition against another.

    Attributes:
        condition: Its label.
        rival: What it is compared with: `the control`, or another label.
        word: `above`, `below`, `not separable`, `stopped early at 20`, or `no verdict (why)`.
        n: Seeds that both have, ended at the same step.
        planned: Seeds planned.
        step: The training step that all of them reached; None without any.
        planned_steps: Training steps planned.
        difference: Mean over those seeds of (condition - rival), with its own 95 % t interval.
        p: Of the paired t test, unadjusted; None with fewer than two pairs.
        p_holm: The same, adjusted over `comparisons`; None where nothing is ranked.
        comparisons: Comparisons that the adjustment is over.
        needed: Paired seeds that see this difference with 80 % power under the strictest level of
            the adjustment; None where that is unknown.
        same_as: Conditions that are the same run up to a factor.

    """

    condition: str
    rival: str
    word: str
    n: int
    planned: int
    step: int | None
    planned_steps: int
    difference: Estimate
    p: float | None
    p_holm: float | None
    comparisons: int
    needed: int | None
    same_as: tuple[str, ...] = ()

    @property
    def is_claim(self) -> bool:
        """Whether it claims that one is above the other."""
        return self.word in (ABOVE, BELOW)

    @property
    def words(self) -> str:
        """The verdict as every table has it: `word`, an early step, and what is the same run."""
        return f"{self.word}{self._early}{self._same}"

    @property
    def sentence(self) -> str:
        """The verdict for readers, with its rival, n and p."""
        if not self.is_ranked:
            return self.words
        joint = " from" if self.word == SAME else ""
        return f"{self.word}{joint} {self.rival}{self._early}{self._same} ({self._evidence()})"

    @property
    def is_ranked(self) -> bool:
        """Whether the test decided the word."""
        return self.is_claim or self.word == SAME

    @property
    def _early(self) -> str:
        return early(self.step, self.planned_steps) if self.is_ranked else ""

    @property
    def _same(self) -> str:
        return (
            f"; the same run up to a factor as {' and '.join(self.same_as)}" if self.same_as else ""
        )

    def _evidence(self) -> str:
        n = f"n = {self.n}" if self.n == self.planned else f"n = {self.n} of {self.planned}"
        parts = [n]
        if self.p is not None and self.p_holm is not None:
            parts.append(p_text(self.p_holm))
            if self.comparisons > 1:
                parts[-1] = f"Holm {parts[-1]}, unadjusted {p_text(self.p)}"
        evidence = ", ".join(parts)
        if self.word != SAME or self.needed is None or self.needed <= self.n:
            return evidence
        return f"{evidence}; {self.needed:,} seeds for 80 % power"


def is_claim(words: str) -> bool:
    """Tell whether the words of a table say that one is above the other."""
    return words.startswith((ABOVE, BELOW))


def early(step: int | None, planned: int) -> str:
    """Return ` at step 12` where trials are compared before their last planned step."""
    return "" if step is None or step >= planned else f" at step {step}"


def p_text(p: float) -> str:
    """Return a p value to two digits; below 0.001 only that."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def word_of(difference: float, p: float | None) -> str:
    """Return what a test at `LEVEL` says of a difference."""
    if p is None or not p < LEVEL:
        return SAME
    return ABOVE if difference > 0 else BELOW


def verdicts(
    ends: Sequence[End],
    *,
    resolution: float,
    against: str = "",
    same_runs: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Verdict, ...]:
    """Return the verdict about every condition but the control, in their order.

    Holm's family are all conditions of the sweep, those without a verdict included, so that no
    verdict is lost when another trial ends.

    Args:
        ends: Every planned trial of the sweep.
        resolution: Smallest step of the metric: 1 / tasks for a rate; 0 if not known.
        against: What stands against the sweep as a whole, `audit failed`; nothing is ranked then.
        same_runs: Condition -> those that are the same run up to a factor.

    """
    groups = _groups(ends)
    control = _control(ends)
    pairs = [(label, control) for label in groups if label != control]
    return _family(groups, pairs, control, resolution, against, same_runs or {})


def between(
    a: str,
    b: str,
    ends: Sequence[End],
    *,
    resolution: float,
    against: str = "",
    same_runs: Mapping[str, Sequence[str]] | None = None,
) -> Verdict:
    """Return the verdict about condition `a` against condition `b` of one sweep.

    With the control on one side it is that of `verdicts`. Any other pair is one of all pairs of
    conditions, and Holm's family are all of these. The other arguments are those of `verdicts`.
    """
    groups, control = _groups(ends), _control(ends)
    labels = list(groups)
    if control in (a, b):
        others = [(label, control) for label in labels if label not in (a, b)]
    else:
        every = [(x, y) for i, x in enumerate(labels) for y in labels[:i]]
        others = [pair for pair in every if set(pair) != {a, b}]
    pairs = [(a, b), *others]
    return _family(groups, pairs, control, resolution, against, same_runs or {})[0]


def adjusted(family: Sequence[Verdict], p_values: Mapping[str, float]) -> dict[str, float]:
    """Return p values of another test, adjusted over the same family: condition -> p."""
    ranked = [one.condition for one in family if one.p_holm is not None]
    known = [p_values.get(label, 1.0) for label in ranked]
    return dict(zip(ranked, _holm(known, family=len(family)), strict=True))


def _groups(ends: Sequence[End]) -> dict[str, list[End]]:
    groups: dict[str, list[End]] = {}
    for end in ends:
        groups.setdefault(end.condition, []).append(end)
    return groups


def _control(ends: Sequence[End]) -> str:
    return next((end.condition for end in ends if end.is_control), "")


def _family(
    groups: Mapping[str, Sequence[End]],
    pairs: Sequence[tuple[str, str]],
    control: str,
    resolution: float,
    against: str,
    same_runs: Mapping[str, Sequence[str]],
) -> tuple[Verdict, ...]:
    """Return the verdicts about pairs of conditions, adjusted for all of them together."""
    judged = []
    for a, b in pairs:
        rival = CONTROL if b == control else b
        one = _measured(a, groups[a], groups.get(b, ()), rival, resolution, len(pairs))
        same = tuple(CONTROL if label == control else label for label in same_runs.get(a, ()))
        word = f"{NO_VERDICT} ({against})" if against else ""
        if rival in same:
            word = word or f"{NO_VERDICT} (the same run up to a factor as {rival})"
            same = tuple(label for label in same if label != rival)
        word = word or objection(groups[a], groups.get(b, ()), n=one.n, rival=rival)
        judged.append(replace(one, word=word, same_as=same))
    ranked = [i for i, one in enumerate(judged) if not one.word and one.p is not None]
    p_holm = _holm([judged[i].p or 0.0 for i in ranked], family=len(pairs))
    for i, p in zip(ranked, p_holm, strict=True):
        word = word_of(judged[i].difference.mean, p)
        judged[i] = replace(judged[i], word=word, p_holm=p)
    return tuple(judged)


def _holm(p_values: Sequence[float], *, family: int) -> list[float]:
    """Adjust p values that are some of a family; those that are not known count as 1."""
    return holm([*p_values, *[1.0] * (family - len(p_values))])[: len(p_values)]


def _measured(
    label: str,
    ours: Sequence[End],
    theirs: Sequence[End],
    rival: str,
    resolution: float,
    comparisons: int,
) -> Verdict:
    """Return the paired difference of two conditions and its test; the word is still empty."""
    paired = pairs_of(ours, theirs)
    d = [a - b for a, b in paired.values()]
    steps = {end.step for end in ours if end.seed in paired}
    difference = mean_over_seeds(d, resolution=resolution)
    needed = None
    if len(d) > 1:
        spread, level = max(stdev(d), resolution), LEVEL / comparisons
        needed = seeds_for_power(difference.mean, spread, level=level, least=SEEDS_FOR_A_CLAIM)
    return Verdict(
        condition=label,
        rival=rival,
        word="",
        n=len(d),
        planned=max(len(ours), len(theirs)),
        step=max(steps, default=None),
        planned_steps=max(end.planned for end in ours),
        difference=difference,
        p=paired_t_p(d, resolution=resolution) if len(d) > 1 else None,
        p_holm=None,
        comparisons=comparisons,
        needed=needed,
    )


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
