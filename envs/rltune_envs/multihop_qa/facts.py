"""The facts of a closed world, invented from a seed. No sentences and no questions.

A relation gives each of its subjects one value, which only the subject's own passage states: so a
question about two subjects needs two passages. There is no symmetric relation such as a marriage,
which both passages would state.
"""

import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rltune_envs.multihop_qa import names
from rltune_envs.streams import stream

PERSON, WORK, ORGANISATION, TOWN, REGION = "person", "work", "organisation", "town", "region"
YEAR, PROFESSION, PRODUCT, WORK_KIND = "year", "profession", "product", "kind of work"


@dataclass(frozen=True, slots=True)
class Relation:
    """The kind of its subjects, and the kind of its values."""

    of: str
    to: str


RELATIONS: Mapping[str, Relation] = {
    "birthplace": Relation(PERSON, TOWN),
    "birth year": Relation(PERSON, YEAR),
    "profession": Relation(PERSON, PROFESSION),
    "teacher": Relation(PERSON, PERSON),
    "employer": Relation(PERSON, ORGANISATION),
    "author": Relation(WORK, PERSON),
    "kind": Relation(WORK, WORK_KIND),
    "publication year": Relation(WORK, YEAR),
    "setting": Relation(WORK, TOWN),
    "founder": Relation(ORGANISATION, PERSON),
    "founding year": Relation(ORGANISATION, YEAR),
    "seat": Relation(ORGANISATION, TOWN),
    "region": Relation(TOWN, REGION),
    "product": Relation(TOWN, PRODUCT),
    "capital": Relation(REGION, TOWN),
}

VALUES: Mapping[str, tuple[str, ...]] = {
    YEAR: names.YEARS,
    PROFESSION: names.PROFESSIONS,
    PRODUCT: names.PRODUCTS,
    WORK_KIND: names.WORK_KINDS,
}
"""All values of the kinds that are not entities."""

_FIRST_BIRTH, _LAST_BIRTH = 1800, 1859
_LAST_FOUNDER_BIRTH = 1825  # all organisations exist when the youngest person seeks work
_FIRST_FOUNDING_AGE, _LAST_FOUNDING = 20, 1849
_WRITING_AGES = range(20, 40)
_YEARS_TO_TEACHER = 10


@dataclass(frozen=True, slots=True)
class Entity:
    """Something with a name: its kind, and its facts as relation -> value."""

    name: str
    kind: str
    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of entities of each kind in a world."""

    persons: int
    works: int
    organisations: int
    towns: int
    regions: int


def sizes(passages: int) -> Sizes:
    """Divide the passages: of what places leave, half to persons and a third to works."""
    towns = min(len(names.TOWNS), max(12, passages // 20))
    regions = max(4, towns // 6)
    rest = passages - towns - regions
    organisations = rest // 6
    works = rest // 3
    return Sizes(rest - works - organisations, works, organisations, towns, regions)


def invent(seed: int, passages: int) -> tuple[Entity, ...]:
    """Return the entities of a world; equal arguments give equal worlds in every process.

    Args:
        seed: Names the world.
        passages: Number of entities, as each has one passage.

    """
    rng = stream(f"multihop_qa/world/{seed}/{passages}")
    size = sizes(passages)
    places = _places(rng, size)
    towns = [entity.name for entity in places if entity.kind == TOWN]
    births = _births(rng, size.persons)
    organisations = _organisations(rng, size.organisations, births, towns)
    persons = _persons(rng, births, organisations, towns)
    return (*persons, *_works(rng, size.works, births, towns), *organisations, *places)


def _places(rng: random.Random, size: Sizes) -> list[Entity]:
    """Spread the towns evenly over the regions; the first town of each is its capital."""
    towns = rng.sample(names.TOWNS, size.towns)
    regions = rng.sample(names.REGIONS, size.regions)
    return [
        *(
            Entity(
                town,
                TOWN,
                {"region": regions[i % size.regions], "product": rng.choice(names.PRODUCTS)},
            )
            for i, town in enumerate(towns)
        ),
        *(Entity(region, REGION, {"capital": towns[i]}) for i, region in enumerate(regions)),
    ]


def _births(rng: random.Random, n: int) -> dict[str, int]:
    """Return name -> year of birth, the oldest first; the years are spread evenly."""
    span = _LAST_BIRTH - _FIRST_BIRTH + 1
    persons = _two_words(rng, names.FIRST_NAMES, names.FAMILY_NAMES, n)
    return {name: _FIRST_BIRTH + i * span // n for i, name in enumerate(persons)}


def _organisations(
    rng: random.Random, n: int, births: Mapping[str, int], towns: Sequence[str]
) -> list[Entity]:
    elders = [name for name, birth in births.items() if birth <= _LAST_FOUNDER_BIRTH]
    titles = _two_words(rng, names.ORGANISATION_STARTS, names.ORGANISATION_ENDS, n)
    entities = []
    for name, founder in zip(titles, rng.sample(elders, n), strict=True):
        year = rng.randint(births[founder] + _FIRST_FOUNDING_AGE, _LAST_FOUNDING)
        facts = {"founder": founder, "founding year": str(year), "seat": rng.choice(towns)}
        entities.append(Entity(name, ORGANISATION, facts))
    return entities


def _persons(
    rng: random.Random,
    births: Mapping[str, int],
    organisations: Sequence[Entity],
    towns: Sequence[str],
) -> list[Entity]:
    persons, years = list(births), list(births.values())
    entities = []
    for name, birth in births.items():
        facts = {
            "birthplace": rng.choice(towns),
            "birth year": str(birth),
            "profession": rng.choice(names.PROFESSIONS),
        }
        elders = persons[: bisect_right(years, birth - _YEARS_TO_TEACHER)]
        # A shared part of a name would blur whose passage a search for the name must find.
        if elders and not _share_a_word(teacher := rng.choice(elders), name):
            facts["teacher"] = teacher
        employer = rng.choice(organisations)
        while employer.facts["founder"] == name:
            employer = rng.choice(organisations)
        facts["employer"] = employer.name
        entities.append(Entity(name, PERSON, facts))
    return entities


def _works(
    rng: random.Random, n: int, births: Mapping[str, int], towns: Sequence[str]
) -> list[Entity]:
    authors = list(births)
    entities = []
    for name in _two_words(rng, names.WORK_STARTS, names.WORK_ENDS, n):
        author = rng.choice(authors)
        facts = {
            "author": author,
            "kind": rng.choice(names.WORK_KINDS),
            "publication year": str(births[author] + rng.choice(_WRITING_AGES)),
            "setting": rng.choice(towns),
        }
        entities.append(Entity(name, WORK, facts))
    return entities


def _two_words(rng: random.Random, starts: Sequence[str], ends: Sequence[str], n: int) -> list[str]:
    """Return `n` different names."""
    pairs = rng.sample(range(len(starts) * len(ends)), n)
    return [f"{starts[pair // len(ends)]} {ends[pair % len(ends)]}" for pair in pairs]


def _share_a_word(one: str, other: str) -> bool:
    return not set(one.split()).isdisjoint(other.split())
