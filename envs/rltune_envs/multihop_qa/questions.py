"""Questions about a closed world, each certified: one passage is never enough to answer it.

The number of hops is the number of facts that must be combined, each from another passage. A bridge
question follows a chain of relations from the one entity that it names; comparisons are in
`comparison`.
"""

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from functools import cache

from rltune_envs.errors import GenerationError
from rltune_envs.multihop_qa.comparison import compare, plan_comparison
from rltune_envs.multihop_qa.facts import PERSON, RELATIONS
from rltune_envs.multihop_qa.records import Question
from rltune_envs.multihop_qa.verifiers import normalize_answer
from rltune_envs.multihop_qa.world import World, as_hop
from rltune_envs.streams import stream

HOPS = (2, 3, 4)
KINDS = ("bridge", "comparison")
_PLANS, _ATTEMPTS = 20, 100  # a small world cannot fill every plan


def make_question(
    world: World, seed: int, *, hops: Sequence[int] = HOPS, kinds: Sequence[str] = KINDS
) -> Question:
    """Return the question of a seed; equal arguments give equal questions in every process.

    Each combination of kind and number of hops is equally likely.

    Args:
        world: What it is about.
        seed: Names the question.
        hops: Numbers of facts to choose from, out of `HOPS`.
        kinds: Kinds to choose from, out of `KINDS`.

    Raises:
        GenerationError: No attempt passed the certificate; the world is too small.

    """
    hops, kinds = sorted(set(hops)), sorted(set(kinds))
    world_id = f"{world.seed}/{len(world.passages)}"
    rng = stream(f"multihop_qa/question/{world_id}/{hops}/{kinds}/{seed}")
    kind, n_hops = rng.choice(kinds), rng.choice(hops)
    for _ in range(_PLANS):
        attempt = _planned(world, rng, kind, n_hops, f"world/{world_id}/{seed}")
        for _ in range(_ATTEMPTS):
            if question := attempt():
                return question
    raise GenerationError(
        f"no {kind} question of {n_hops} hops in {_PLANS * _ATTEMPTS} attempts for seed {seed} in "
        f"a world of {len(world.passages)} passages; make it larger"
    )


def _planned(
    world: World, rng: random.Random, kind: str, n_hops: int, question_id: str
) -> Callable[[], Question | None]:
    if kind == "bridge":
        return lambda: _bridge(world, rng, n_hops, question_id=question_id)
    plan = plan_comparison(rng, n_hops)
    return lambda: compare(world, rng, plan, question_id=question_id)


def content_hash(question: Question) -> str:
    """Return the sha256 of what is asked: words in any order, the answer, the facts if known.

    "A or B" and "B or A" are one task. The facts distinguish questions of the same words: the
    teacher of the founder, and the founder of the teacher.
    """
    facts = sorted(
        (normalize_answer(hop.title), normalize_answer(hop.answer))
        for hop in question.decomposition
    )
    words = sorted(normalize_answer(question.text).split())
    return _digest([words, normalize_answer(question.answers[0]), facts])


def near_hash(question: Question) -> str:
    """Return the sha256 of the evidence: equal for all questions about the same passages.

    A question of unknown evidence is near only to itself.
    """
    if not question.evidence:
        return content_hash(question)
    return _digest(sorted(normalize_answer(f"{one.title} {one.text}") for one in question.evidence))


@cache
def chains(kind: str, length: int) -> tuple[tuple[str, ...], ...]:
    """Return the sequences of relations that lead on from something of a kind."""
    if length == 0:
        return ((),)
    return tuple(
        (name, *rest)
        for name, relation in RELATIONS.items()
        if relation.of == kind
        for rest in chains(relation.to, length - 1)
    )


def _bridge(world: World, rng: random.Random, n_hops: int, *, question_id: str) -> Question | None:
    """Walk a random chain from a random entity.

    None where it breaks off or comes back, or where a passage that names the start holds a later
    value: that passage could give the answer away, or let the reader skip a hop.
    """
    start = rng.choice(world.passages).title
    options = chains(world.entities[start].kind, n_hops)
    if not options:
        return None
    relations = rng.choice(options)
    hops, reached = [], [start]
    for relation in relations:
        value = world.value(reached[-1], relation)
        if value is None or value in reached:
            return None
        hops.append(as_hop(relation, reached[-1], value))
        reached.append(value)
    if any(world.is_told_together(start, value) for value in reached[2:]):
        return None
    kind = RELATIONS[relations[-1]].to
    path = " of ".join(f"the {relation}" for relation in reversed(relations))
    return Question(
        question_id=question_id,
        text=f"{'Who' if kind == PERSON else 'What'} is {path} of {start}?",
        answers=world.answers(reached[-1], kind),
        kind="bridge",
        hops=n_hops,
        evidence=world.passages_of(reached[:-1]),
        decomposition=tuple(hops),
        candidates=world.names(kind),
    )


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
