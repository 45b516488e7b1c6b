"""The closed world: invented facts, in one short passage for each entity."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rltune_envs.multihop_qa import names
from rltune_envs.multihop_qa.facts import (
    ORGANISATION,
    PERSON,
    REGION,
    TOWN,
    VALUES,
    WORK,
    Entity,
    invent,
)
from rltune_envs.multihop_qa.records import Hop, Passage

MIN_PASSAGES, MAX_PASSAGES = 100, 7000

_TEMPLATES: Mapping[str, str] = {
    PERSON: "{name} was born in {birthplace} in {birth year}. "
    "This {profession} studied under {teacher} and worked for {employer}.",
    WORK: "{name} is a {kind} by {author}. It was published in {publication year} and is set in "
    "{setting}.",
    ORGANISATION: "{name} was founded in {founding year} by {founder}. Its seat is {seat}.",
    TOWN: "{name} is a town in the region {region}. It is known for {product}.",
    REGION: "{name} is a region. Its capital is {capital}.",
}
_SELF_TAUGHT = _TEMPLATES[PERSON].replace(" studied under {teacher} and", "")

_PUNCTUATION = (".", ",", "?")
_GRAMMAR = names.split(
    "It Its This a and by capital for founded in is known published region seat set studied the "
    "town under was worked "  # passages
    "Do Was What Which Who after author before birth birthplace born employer first founder "
    "founding have of or product profession publication same setting teacher year yes no "
    "Invalid No Nothing Search failed found left search"  # questions, answers, notices
)
WORDS: tuple[str, ...] = (*_PUNCTUATION, *_GRAMMAR, *names.ALL)
"""All words and marks of all worlds, their questions, answers and compact notices."""


class World:
    """The world of a seed; it never changes, and threads may share it.

    Args:
        seed: Names the world.
        passages: Its size.

    Attributes:
        seed: As given.
        passages: One passage for each entity, titled with its name.
        entities: Name -> what it is, in the order of the passages.

    Raises:
        ValueError: It is too small for questions, or there are not enough names.

    """

    def __init__(self, *, seed: int, passages: int) -> None:
        if not MIN_PASSAGES <= passages <= MAX_PASSAGES:
            raise ValueError(
                f"passages: {passages} is not possible; a closed world has {MIN_PASSAGES} to "
                f"{MAX_PASSAGES} passages, as there are names for"
            )
        self.seed = seed
        self.entities = {entity.name: entity for entity in invent(seed, passages)}
        self.passages = tuple(Passage(name, _tell(one)) for name, one in self.entities.items())
        self._passages = {passage.title: passage for passage in self.passages}
        self._names: dict[str, tuple[str, ...]] = {}
        for kind in (PERSON, WORK, ORGANISATION, TOWN, REGION):
            self._names[kind] = tuple(n for n, one in self.entities.items() if one.kind == kind)
        self._subjects: dict[tuple[str, str], list[str]] = {}
        self._holders: dict[str, list[str]] = {name: [name] for name in self.entities}
        for name, entity in self.entities.items():
            for relation, value in entity.facts.items():
                self._subjects.setdefault((relation, value), []).append(name)
                self._holders.setdefault(value, []).append(name)
        self._families = Counter(name.split()[1] for name in self._names[PERSON])

    def names(self, kind: str) -> tuple[str, ...]:
        """Return everything of a kind: names of entities, or years, professions and so on."""
        return VALUES[kind] if kind in VALUES else self._names[kind]

    def value(self, name: str, relation: str) -> str | None:
        """Return the value of a relation for an entity; None where the world has none."""
        return self.entities[name].facts.get(relation)

    def subjects(self, relation: str, value: str) -> list[str]:
        """Return the entities for which a relation has a value."""
        return self._subjects.get((relation, value), [])

    def passages_of(self, entities: Sequence[str]) -> tuple[Passage, ...]:
        """Return the passages of entities, in their order."""
        return tuple(self._passages[name] for name in entities)

    def is_told_together(self, name: str, value: str) -> bool:
        """Return whether some passage holds both an entity's name and another name or value."""
        return not set(self._holders[name]).isdisjoint(self._holders[value])

    def answers(self, value: str, kind: str) -> tuple[str, ...]:
        """Return a value as a gold answer, with all other unambiguous forms."""
        if kind == PERSON:
            family = value.split()[1]
            profession = self.entities[value].facts["profession"]
            alone = (family,) if self._families[family] == 1 else ()
            return (value, f"{profession} {value}", *alone)
        if kind in (TOWN, REGION):
            return (value, f"{kind} of {value}")
        return (value,)


def as_hop(relation: str, subject: str, value: str) -> Hop:
    """Return a fact as one step of a decomposition."""
    return Hop(f"What is the {relation} of {subject}?", value, subject)


def _tell(entity: Entity) -> str:
    """Return the passage of an entity; it states all of its facts."""
    template = _TEMPLATES[entity.kind]
    if entity.kind == PERSON and "teacher" not in entity.facts:
        template = _SELF_TAUGHT
    return template.format(name=entity.name, **entity.facts)
