"""The one verdict: does a condition end above or below the control of its sweep?

Paired over seeds at the last gate, Student's t test, its p adjusted by Holm over the conditions of
the sweep; with seeds until decided, adjusted for all looks and split over the conditions. The
terminal, the tables, figures, HTML, `compare` and the API say what stands here, in the words of
`rltune.analysis.verdict_words`. Two other questions are answered elsewhere: whether two single
trials differ by more than the luck of their held-out tasks (`rltune.analysis.compare`), and whether
a trial beats the best of the lineage by more than that (`rltune.lineage.noise`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import stdev

from rltune.analysis.ends import NO_VERDICT, End, beside, objection, obstacle, pairs_of
from rltune.analysis.looks import is_last_look, looks_taken
from rltune.analysis.stats import Estimate, mean_over_seeds
from rltune.analysis.verdict_words import (
    ABOVE,
    BELOW,
    CONTROL,
    EQUAL,
    LEVEL,
    SAME,
    Verdict,
    word_of,
)
from rltune.comparability.findings import SEEDS_FOR_A_CLAIM
from rltune.maths.power import seeds_for_power
from rltune.maths.sequential import Decision, Look, adjusted_p
from rltune.maths.significance import holm, paired_t_p
from rltune.types import SeedPlan


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
    """Return p values of another test, adjusted over the same family: condition -> p.

    Of a single test only: with seeds until decided nothing adjusts them for the looks.
    """
    ranked = [one.condition for one in family if one.p_holm is not None and not one.looks]
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
        one = replace(one, word=word, same_as=same)
        if groups[a][0].until is not None:
            one = _by_looks(one, groups[a], groups.get(b, ()), resolution)
        word = one.word or objection(groups[a], groups.get(b, ()), n=one.n, rival=rival)
        judged.append(replace(one, word=word))
    ranked = [i for i, one in enumerate(judged) if not one.word and one.p is not None]
    p_holm = _holm([judged[i].p or 0.0 for i in ranked], family=len(pairs))
    for i, p in zip(ranked, p_holm, strict=True):
        word = word_of(judged[i].difference.mean, p)
        judged[i] = replace(judged[i], word=word, p_holm=p)
    return tuple(judged)


def _by_looks(
    one: Verdict, ours: Sequence[End], theirs: Sequence[End], resolution: float
) -> Verdict:
    """Return the verdict of seeds until decided: of the last look that was taken.

    What stands against a ranking is asked of the control's trials of the same seeds: it goes on for
    other conditions.
    """
    plan, theirs = ours[0].until, beside(ours, theirs)
    assert plan is not None
    looks: tuple[Look, ...] = ()
    if one.rival == CONTROL:
        level = LEVEL / one.comparisons
        looks = looks_taken(ours, theirs, plan, level=level, resolution=resolution)
    one = replace(one, planned=plan.most, looks=looks, effect=plan.effect)
    word = one.word or obstacle(ours, theirs, rival=one.rival)
    if not word and one.rival != CONTROL:
        how = "each condition is tested against the control"
        if ours[0].is_control:
            how = f"give {one.rival} first, the control second"
        word = f"{NO_VERDICT} (seeds until decided: {how})"
    if not looks:
        word = word or objection(ours, theirs, n=one.n, rival=one.rival)
        return replace(one, word=word or f"{NO_VERDICT} (no look yet)")
    last = looks[-1]
    one = replace(
        one,
        word=word or _word_of_look(last, plan, is_last=is_last_look(ours, theirs, plan)),
        n=last.n,
        difference=Estimate(last.mean, last.n, last.interval),
        p=last.p,
    )
    if not one.is_ranked:
        return one
    is_final = any(end.look == plan.most for end in ours)
    p = adjusted_p(last.p, [look.n for look in looks], most=plan.most, is_final=is_final)
    return replace(one, p_holm=min(1.0, one.comparisons * p))


def _word_of_look(look: Look, plan: SeedPlan, *, is_last: bool) -> str:
    if look.decision is Decision.DIFFERENT:
        return ABOVE if look.mean > 0.0 else BELOW
    if look.decision is Decision.EQUAL:
        return EQUAL
    if is_last:
        return SAME
    return f"{NO_VERDICT} (undecided after {look.n} of at most {plan.most} seeds)"


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
