"""The closed world, read back from its passages alone: sizes, words, facts, names, retrieval."""

import hashlib
import re
from collections import Counter

import pytest
from cases import each
from qa_oracle import FORMS, read, world_of

from rltune_envs.multihop_qa import names
from rltune_envs.multihop_qa.bm25 import Bm25Retriever
from rltune_envs.multihop_qa.facts import RELATIONS, Sizes, sizes
from rltune_envs.multihop_qa.verifiers import normalize_answer
from rltune_envs.multihop_qa.world import MAX_PASSAGES, MIN_PASSAGES, WORDS, World

WORLDS = [(0, 3000), (1, 3000), (0, 100), (5, 333), (2, MAX_PASSAGES)]


@pytest.fixture(params=WORLDS, ids=lambda pair: f"seed{pair[0]}-{pair[1]}")
def world(request):
    return world_of(*request.param)


def test_sizes_by_hand():
    # 3000 / 20 = 150 towns, of which there are names for 120; 120 / 6 = 20 regions; 2860 are left:
    # 2860 / 6 = 476 organisations, 2860 / 3 = 953 works, and 1431 persons.
    assert sizes(3000) == Sizes(1431, 953, 476, 120, 20)
    assert sizes(100) == Sizes(42, 28, 14, 12, 4)


def test_there_is_one_short_passage_for_each_name(world):
    titles = [passage.title for passage in world.passages]
    assert len(set(titles)) == len(titles) == len(read(world))
    assert all(passage.text.startswith(f"{passage.title} ") for passage in world.passages)
    assert max(len(passage.text.split()) for passage in world.passages) <= 28


@each("passages", [MIN_PASSAGES, 101, 299, 300, 3000, MAX_PASSAGES])
def test_a_world_has_as_many_passages_as_asked_for(passages):
    assert len(world_of(0, passages).passages) == passages


@pytest.mark.parametrize("passages", [0, MIN_PASSAGES - 1, MAX_PASSAGES + 1])
def test_other_sizes_are_refused(passages):
    with pytest.raises(ValueError, match=rf"^passages: {passages} is not possible; .* 100 to 7000"):
        World(seed=0, passages=passages)


def test_all_words_are_known_beforehand(world):
    assert len(set(WORDS)) == len(WORDS) <= 700
    used = {word for one in world.passages for word in re.findall(r"\w+|[^\w\s]", one.text)}
    assert used <= set(WORDS)


def test_every_word_is_one_token():
    assert all(re.fullmatch(r"\w+|[^\w\s]", word) for word in WORDS)


def test_no_word_stands_in_two_lists():
    # BM25 folds case, so they must differ without it, too.
    counts = Counter(word.casefold() for word in names.ALL)
    assert counts.most_common(1)[0][1] == 1
    grammar = {word.casefold() for word in WORDS if word not in names.ALL}
    assert not grammar & set(counts)


def test_the_passages_tell_what_the_world_knows(world):
    told = {name: facts for name, (_, facts) in read(world).items()}
    assert told == {name: entity.facts for name, entity in world.entities.items()}
    for name, (kind, facts) in read(world).items():
        assert world.entities[name].kind == kind
        for relation, value in facts.items():
            assert RELATIONS[relation].of == kind
            assert value in world.names(RELATIONS[relation].to)
            assert world.value(name, relation) == value
            assert name in world.subjects(relation, value)
    for kind in FORMS:
        assert set(world.names(kind)) == {n for n, (k, _) in read(world).items() if k == kind}


def test_facts_agree_with_each_other(world):
    facts = {name: found for name, (_, found) in read(world).items()}
    for name, found in facts.items():
        if "teacher" in found:
            pupil, teacher = int(found["birth year"]), facts[found["teacher"]]
            assert int(teacher["birth year"]) <= pupil - 10
            assert not set(name.split()) & set(found["teacher"].split())
        if "employer" in found:
            assert facts[found["employer"]]["founder"] != name
            assert int(facts[found["employer"]]["founding year"]) < 1850
        if "author" in found:
            born = int(facts[found["author"]]["birth year"])
            assert born + 20 <= int(found["publication year"]) <= 1899
        if "founder" in found:
            born = int(facts[found["founder"]]["birth year"])
            assert int(found["founding year"]) >= born + 20
        if "capital" in found:
            assert facts[found["capital"]]["region"] == name


def test_only_a_region_and_its_capital_name_each_other(world):
    # That is why a chain of relations needs a passage for each.
    named = {
        name: {value for value in facts.values() if value in world.entities}
        for name, (_, facts) in read(world).items()
    }
    for name, values in named.items():
        for value in values:
            if name in named[value]:
                assert {world.entities[name].kind, world.entities[value].kind} == {"town", "region"}


def test_told_together_is_what_a_passage_holds():
    world = world_of(0, 100)
    texts = [re.findall(r"\w+", passage.text) for passage in world.passages]
    spaced = [f" {' '.join(words)} " for words in texts]
    everything = [*world.entities, *names.YEARS[:40:5], "painter", "wine", "novel"]
    held = {thing: {i for i, text in enumerate(spaced) if f" {thing} " in text}
            for thing in everything}  # fmt: skip
    for name in world.entities:
        for thing in everything:
            if held[thing]:
                assert world.is_told_together(name, thing) == bool(held[name] & held[thing])


@pytest.mark.parametrize(("seed", "passages"), [*WORLDS, *((seed, 100) for seed in range(6, 26))])
def test_a_full_name_finds_its_own_passage_first(seed, passages):
    world = world_of(seed, passages)
    retriever = Bm25Retriever(world.passages)
    for name in world.entities:
        assert [passage.title for passage in retriever.search(name, k=1)] == [name]


def test_answers_mean_one_thing_each():
    for seed, passages in ((0, 3000), (0, 100), (1, 150)):
        world = world_of(seed, passages)
        owners = Counter(
            normalize_answer(form)
            for kind in ("person", "work", "organisation", "town", "region")
            for name in world.names(kind)
            for form in set(world.answers(name, kind))
        )
        assert set(owners.values()) == {1}


def test_aliases_by_hand():
    world = world_of(0, 100)
    families = Counter(name.split()[1] for name in world.names("person"))
    lonely = next(name for name in world.names("person") if families[name.split()[1]] == 1)
    common = next(name for name in world.names("person") if families[name.split()[1]] > 1)
    work = read(world)[lonely][1]["profession"]
    assert world.answers(lonely, "person") == (lonely, f"{work} {lonely}", lonely.split()[1])
    assert len(world.answers(common, "person")) == 2
    town = world.names("town")[0]
    assert world.answers(town, "town") == (town, f"town of {town}")
    assert world.answers("1834", "year") == ("1834",)


def test_a_seed_and_a_size_name_a_world():
    assert world_of(0, 300).passages == World(seed=0, passages=300).passages
    assert world_of(0, 300).passages != world_of(1, 300).passages
    assert set(world_of(0, 300).entities) != set(world_of(0, 301).entities)


def test_world_0_is_what_it_was():
    # Shipped weights and published results are about this world.
    text = "\n".join(f"{p.title}\t{p.text}" for p in world_of(0, 3000).passages)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "ae2d749de5d17cd1"
