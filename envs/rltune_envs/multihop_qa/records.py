"""The records of a multi-hop question, from whatever file or generator."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Passage:
    """One retrievable text."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of a decomposition: a question, its answer, and the title of its passage."""

    question: str
    answer: str
    title: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold evidence.

    Attributes:
        question_id: The source's own id, or one made from its position.
        text: The question.
        answers: The gold answer first, then its aliases; at least one.
        kind: `bridge`, `comparison`, or the source's own word.
        hops: Facts that must be combined; 0 where the source does not say.
        evidence: The passages that hold them, without repetition.
        decomposition: The hops in order; empty where the source has none.
        passages: The question's own passages, distractors included; may be empty.
        candidates: What a guess without reading chooses from; empty where unknown.

    """

    question_id: str
    text: str
    answers: tuple[str, ...]
    kind: str
    hops: int
    evidence: tuple[Passage, ...]
    decomposition: tuple[Hop, ...] = ()
    passages: tuple[Passage, ...] = ()
    candidates: tuple[str, ...] = ()

    @property
    def supporting(self) -> tuple[str, ...]:
        """Titles of the evidence, without repetition; several passages may share one."""
        return tuple(dict.fromkeys(passage.title for passage in self.evidence))


class Retriever(Protocol):
    """Finds passages for a query."""

    def search(self, query: str, *, k: int) -> tuple[Passage, ...]:
        """Return at most `k` passages, best first; a query without a match returns none.

        Raises:
            RetrieverError: There is no answer (`rltune_envs.errors`).

        """


class RankingRetriever(Retriever, Protocol):
    """A retriever whose passages are at hand, with scores: what a server serves."""

    @property
    def passages(self) -> Sequence[Passage]:
        """All passages that it searches."""

    def rank(self, query: str, *, k: int) -> list[tuple[int, float]]:
        """Return the indices in `passages` and the scores of what `search` finds."""
