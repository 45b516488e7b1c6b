"""Reads closed worlds and their questions back from the texts alone, and answers them."""

import re
from functools import cache

from rltune_envs.multihop_qa.world import World

NAME, TWO = r"[A-Z][a-z]+", r"[A-Z][a-z]+ [A-Z][a-z]+"
FORMS = {  # the whole text of a passage -> its facts
    "person": rf"(?P<name>{TWO}) was born in (?P<birthplace>{NAME}) in (?P<birth_year>\d+)\. "
    rf"This (?P<profession>[a-z]+)( studied under (?P<teacher>{TWO}) and)? "
    rf"worked for (?P<employer>{TWO})\.",
    "work": rf"(?P<name>{TWO}) is a (?P<kind>[a-z]+) by (?P<author>{TWO})\. It was published in "
    rf"(?P<publication_year>\d+) and is set in (?P<setting>{NAME})\.",
    "organisation": rf"(?P<name>{TWO}) was founded in (?P<founding_year>\d+) by "
    rf"(?P<founder>{TWO})\. Its seat is (?P<seat>{NAME})\.",
    "town": rf"(?P<name>{NAME}) is a town in the region (?P<region>{NAME})\. It is known for "
    r"(?P<product>[a-z]+)\.",
    "region": rf"(?P<name>{NAME}) is a region\. Its capital is (?P<capital>{NAME})\.",
}


@cache
def read(world: World) -> dict[str, tuple[str, dict[str, str]]]:
    """Return name -> (kind, facts), from the passages alone."""
    found = {}
    for passage in world.passages:
        matches = {kind: re.fullmatch(form, passage.text) for kind, form in FORMS.items()}
        ((kind, match),) = ((kind, match) for kind, match in matches.items() if match)
        facts = {key.replace("_", " "): value for key, value in match.groupdict().items() if value}
        assert facts.pop("name") == passage.title
        found[passage.title] = (kind, facts)
    return found


@cache
def world_of(seed: int, passages: int) -> World:
    return World(seed=seed, passages=passages)


def answer(world: World, question: str) -> tuple[str, list[tuple[str, str]], list[str]]:
    """Return the answer, the facts used as (subject, value), and the names in the question."""
    if chain := re.fullmatch(r"(Who|What) is the (.+) of (.+?)\?", question):
        relations, name = chain[2].split(" of the "), chain[3]
        value, facts = follow(world, relations[::-1], name)
        assert (chain[1] == "Who") == (value in world.names("person"))
        return value, facts, [name]
    if same := re.fullmatch(r"Do (.+) and (.+) have the same (.+)\?", question):
        sides = [subject(world, text) for text in (same[1], same[2])]
        values, facts, named = compared(world, sides, same[3])
        return ("yes" if values[0] == values[1] else "no"), facts, named
    if first := re.fullmatch(r"(Who|Which) was (.+) first, (.+) or (.+)\?", question):
        sides = [subject(world, text) for text in (first[3], first[4])]
        values, facts, named = compared(world, sides, YEAR_OF[first[2]])
        assert values[0] != values[1]
        return sides[values[0] > values[1]][0], facts, named
    order = re.fullmatch(r"Was (.+) (born|founded|published) (before|after) (.+)\?", question)
    sides = [subject(world, text) for text in (order[1], order[4])]
    values, facts, named = compared(world, sides, YEAR_OF[order[2]])
    assert values[0] != values[1]
    is_yes = (values[0] < values[1]) == (order[3] == "before")
    return ("yes" if is_yes else "no"), facts, named


def follow(world: World, relations: list[str], name: str) -> tuple[str, list[tuple[str, str]]]:
    facts = []
    for relation in relations:
        value = read(world)[name][1][relation]
        facts.append((name, value))
        name = value
    return name, facts


def subject(world: World, text: str) -> tuple[str, list[tuple[str, str]], str]:
    """Return what `the author of Silent Bell` is, the facts used, and the name in it."""
    *relations, name = re.sub("^the ", "", text).split(" of ")
    return *follow(world, relations, name), name


def compared(
    world: World, sides: list[tuple[str, list[tuple[str, str]], str]], relation: str
) -> tuple[list[str], list[tuple[str, str]], list[str]]:
    values, facts, named = [], [], []
    for thing, used, name in sides:
        value, last = follow(world, [relation], thing)
        values.append(value)
        facts += [*used, *last]
        named.append(name)
    return values, facts, named


YEAR_OF = {"born": "birth year", "founded": "founding year", "published": "publication year"}
