"""Comparisons: do two subjects have something in common, or which of them came first?

With two hops the question names both subjects; with three one of them, with four both, through a
relation ("the author of Silent Bell"). Each fact is in a different passage.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from rltune_envs.multihop_qa.facts import ORGANISATION, PERSON, TOWN, WORK
from rltune_envs.multihop_qa.records import Hop, Question
from rltune_envs.multihop_qa.world import World, as_hop

YES, NO = "yes", "no"

# Attributes by which subjects of a kind are compared: for equality, and (with its verb) for order.
_SHARED: Mapping[str, tuple[str, ...]] = {
    PERSON: ("birthplace", "profession"),
    WORK: ("author", "setting"),
    ORGANISATION: ("seat",),
    TOWN: ("region", "product"),
}
_ORDERED: Mapping[str, tuple[str, str]] = {
    PERSON: ("birth year", "born"),
    WORK: ("publication year", "published"),
    ORGANISATION: ("founding year", "founded"),
}
# Relations by which a subject of a kind can be named instead of by its own name.
_BRIDGES: Mapping[str, tuple[str, ...]] = {
    PERSON: ("author", "founder", "teacher"),
    ORGANISATION: ("employer",),
    TOWN: ("birthplace", "setting", "seat"),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison without its subjects.

    Attributes:
        hops: Facts to combine, 2 to 4.
        kind: Kind of the subjects.
        attribute: The compared attribute.
        is_yes: The answer, where the question is answered by yes or no.

    """

    hops: int
    kind: str
    attribute: str
    is_yes: bool

    @property
    def is_order(self) -> bool:
        """Whether it asks which came first."""
        return self.attribute not in _SHARED[self.kind]

    @property
    def wants_equal(self) -> bool:
        """Whether the subjects must be alike; otherwise they must differ."""
        return self.is_yes and not self.is_order


@dataclass(frozen=True, slots=True)
class _Side:
    """One subject, the entity by which the question names it, its words, and the facts needed."""

    subject: str
    named: str
    text: str
    hops: tuple[Hop, ...]

    @property
    def year(self) -> int:
        return int(self.hops[-1].answer)


def plan_comparison(rng: random.Random, hops: int) -> Comparison:
    """Draw a comparison; yes and no are equally likely, whatever is compared."""
    kind = rng.choice([kind for kind in _SHARED if hops == 2 or kind in _BRIDGES])
    attribute = rng.choice((*_SHARED[kind], *_ORDERED.get(kind, ())[:1]))
    return Comparison(hops, kind, attribute, is_yes=rng.random() < 0.5)


def compare(
    world: World, rng: random.Random, plan: Comparison, *, question_id: str
) -> Question | None:
    """Compare two random subjects; None when they do not fit, or one passage would suffice.

    One would if it held facts about both, or named both: the search could then stop there.
    """
    sides = _sides(world, rng, plan)
    if sides is None:
        return None
    one, other = sides
    if world.is_told_together(one.named, other.named):
        return None  # so no passage is needed twice either: it would name both
    hops = (*one.hops, *other.hops)
    answers: tuple[str, ...] = (YES if plan.is_yes else NO,)
    candidates: tuple[str, ...] = (YES, NO)
    if plan.is_order and plan.hops == 2:
        answers = world.answers(min(one, other, key=lambda side: side.year).subject, plan.kind)
        candidates = (one.named, other.named)
    return Question(
        question_id=question_id,
        text=_text(plan, one, other),
        answers=answers,
        kind="comparison",
        hops=plan.hops,
        evidence=world.passages_of([hop.title for hop in hops]),
        decomposition=hops,
        candidates=candidates,
    )


def _sides(world: World, rng: random.Random, plan: Comparison) -> tuple[_Side, _Side] | None:
    first = rng.choice(world.names(plan.kind))
    value = world.value(first, plan.attribute)
    if value is None:
        return None
    fitting = world.subjects(plan.attribute, value) if plan.wants_equal else world.names(plan.kind)
    second = rng.choice(fitting)
    is_equal = world.value(second, plan.attribute) == value
    if second == first or is_equal != plan.wants_equal:
        return None
    one = _side(world, rng, plan, first, is_bridged=plan.hops == 4)
    other = _side(world, rng, plan, second, is_bridged=plan.hops >= 3)
    return (one, other) if one and other else None


def _side(
    world: World, rng: random.Random, plan: Comparison, subject: str, *, is_bridged: bool
) -> _Side | None:
    """Return a subject as a side; None where it has no such fact, or no relation leads to it."""
    value = world.value(subject, plan.attribute)
    if value is None:
        return None
    last = as_hop(plan.attribute, subject, value)
    if not is_bridged:
        return _Side(subject, subject, subject, (last,))
    relation = rng.choice(_BRIDGES[plan.kind])
    owners = world.subjects(relation, subject)
    if not owners:
        return None
    named = rng.choice(owners)
    hops = (as_hop(relation, named, subject), last)
    return _Side(subject, named, f"the {relation} of {named}", hops)


def _text(plan: Comparison, one: _Side, other: _Side) -> str:
    if not plan.is_order:
        return f"Do {one.text} and {other.text} have the same {plan.attribute}?"
    verb = _ORDERED[plan.kind][1]
    if plan.hops == 2:
        asked = "Who" if plan.kind == PERSON else "Which"
        return f"{asked} was {verb} first, {one.text} or {other.text}?"
    order = "before" if (one.year < other.year) == plan.is_yes else "after"
    return f"Was {one.text} {verb} {order} {other.text}?"
