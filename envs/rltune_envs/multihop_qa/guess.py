"""Answering without reading: the candidates of a guess, and how often it is right."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import count

from rltune_envs.multihop_qa.records import Question
from rltune_envs.multihop_qa.verifiers import exact_match, normalize_answer


def guesses(question: Question) -> tuple[str, ...]:
    """Return what a guess draws from with equal odds; without candidates a wrong word."""
    return question.candidates or (_wrong_answer(question.answers),)


def guess_probability(question: Question) -> float:
    """Return the share of the guesses that match a gold answer."""
    n_of = _normalized(guesses(question))
    golds = {normalize_answer(answer) for answer in question.answers} - {""}
    return sum(n_of[gold] for gold in golds) / n_of.total()


def _wrong_answer(answers: Sequence[str]) -> str:
    """Return a fixed word, repeated until it is not a gold answer."""
    texts = (" ".join(["nothing"] * n) for n in count(1))
    return next(text for text in texts if not exact_match(text, answers))


@lru_cache(maxsize=1024)
def _normalized(texts: tuple[str, ...]) -> Counter[str]:
    """Count texts in their normalised form."""
    return Counter(map(normalize_answer, texts))
