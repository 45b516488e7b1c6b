"""Sources of questions, and what is searched; both as small values that can be keys.

Worlds, files and indices are made when first needed, once, and shared by all environments of the
process, whatever thread they are in.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import RLock
from typing import Protocol

from rltune_envs.base import SET
from rltune_envs.errors import TaskError
from rltune_envs.multihop_qa.protocol import ANSWER, Action, format_action, parse_response
from rltune_envs.multihop_qa.questions import make_question
from rltune_envs.multihop_qa.records import Passage, Question, Retriever
from rltune_envs.multihop_qa.verifiers import exact_match
from rltune_envs.multihop_qa.world import World
from rltune_envs.streams import stream

OWN, ALL = "own", "all"
BM25 = "bm25"
SET_SIZE = 1 << 32
"""Seeds between two named sets."""

_SETS = 256  # places for sets in the 2**40 seeds of a split_seed; the first is the training's
_MAX_CACHED_QUERY = 300  # characters; longer ones would fill the memory


class Corpus(Hashable, Protocol):
    """A corpus as a value: equal ones share one retriever."""

    def open(self) -> Retriever:
        """Return its retriever."""


class Source(Hashable, Protocol):
    """A question for each seed, as a value."""

    def question(self, seed: int) -> Question:
        """Return the question of a seed."""

    def corpus(self, seed: int) -> Corpus:
        """Return what is searched for it."""

    @property
    def is_own_corpus(self) -> bool:
        """Whether the corpus is known to hold the questions' own passages."""


@dataclass(frozen=True, slots=True)
class Server:
    """A retrieval server, with its own corpus."""

    url: str

    def open(self) -> Retriever:
        """Return a client."""
        from rltune_envs.multihop_qa.http_retriever import HttpRetriever

        return HttpRetriever(self.url)


@dataclass(frozen=True, slots=True)
class ClosedWorld:
    """Questions about a generated world; its passages are one corpus."""

    seed: int
    passages: int
    hops: tuple[int, ...]
    kinds: tuple[str, ...]
    server: Server | None

    def question(self, seed: int) -> Question:
        """Return the question of a seed."""
        return make_question(
            _world(self.seed, self.passages), seed, hops=self.hops, kinds=self.kinds
        )

    @property
    def is_own_corpus(self) -> bool:
        """Whether no server is searched."""
        return self.server is None

    def corpus(self, seed: int) -> Corpus:
        """Return the server, else all passages of the world."""
        return self.server or _WorldCorpus(self.seed, self.passages)


@dataclass(frozen=True, slots=True)
class QuestionFile:
    """Questions of a file; `n` consecutive seeds visit each of its `n` rows once.

    Attributes:
        path: The file.
        file_format: Its layout, `auto` to look.
        searched: `own` (the passages of the question), `all` (of all its questions), or the path of
            a file of passages.
        server: Searched instead.

    """

    path: str
    file_format: str
    searched: str
    server: Server | None

    def question(self, seed: int) -> Question:
        """Return the question of a seed.

        Raises:
            TaskError: The file cannot be used, or there is nothing to search for the question.

        """
        rows = _rows(self.path, self.file_format)
        question = rows[seed % len(rows)]
        holders = {OWN: (question,), ALL: rows}.get(self.searched)
        if self.server is None and holders and not any(one.passages for one in holders):
            raise TaskError(
                f"{self.path}: question {question.question_id} comes without passages to search; "
                "set env.corpus to a file of passages, or env.retriever to the URL of a server"
            )
        return question

    @property
    def is_own_corpus(self) -> bool:
        """Whether neither a server nor a file of passages is searched."""
        return self.server is None and self.searched in (OWN, ALL)

    def corpus(self, seed: int) -> Corpus:
        """Return the server, else what is searched for the question of a seed."""
        if self.server is not None:
            return self.server
        if self.searched == OWN:
            n = len(_rows(self.path, self.file_format))
            return _FileCorpus(self.path, self.file_format, seed % n)
        if self.searched == ALL:
            return _FileCorpus(self.path, self.file_format, None)
        return _PassageFile(self.searched)


@dataclass(frozen=True, slots=True)
class NamedSets:
    """Questions to train on, and named sets of questions to be measured on.

    Attributes:
        train: Asked for seeds below `SET_SIZE` of each 2**40, as a split takes them.
        sets: Name -> its questions, in the order of the names. Those of the i-th set have seeds
            from i * `SET_SIZE` on.

    """

    train: QuestionFile
    sets: tuple[tuple[str, QuestionFile], ...]

    def set_name(self, seed: int) -> str:
        """Return the name of the set that a seed belongs to; empty for the training questions."""
        number = seed // SET_SIZE % _SETS
        return self.sets[number - 1][0] if 0 < number <= len(self.sets) else ""

    def question(self, seed: int) -> Question:
        """Return the question of a seed.

        Raises:
            TaskError: As for the file that it is in.

        """
        return self._source(seed).question(seed)

    @property
    def is_own_corpus(self) -> bool:
        """Whether neither a server nor a file of passages is searched."""
        return self.train.is_own_corpus

    def corpus(self, seed: int) -> Corpus:
        """Return what is searched for the question of a seed."""
        return self._source(seed).corpus(seed)

    def _source(self, seed: int) -> QuestionFile:
        return dict(self.sets).get(self.set_name(seed), self.train)


def set_offsets(source: Source) -> Mapping[str, int]:
    """Return named set -> what is added to a seed for its questions; empty without sets."""
    sets = source.sets if isinstance(source, NamedSets) else ()
    return {name: SET_SIZE * i for i, (name, _) in enumerate(sets, start=1)}


def set_fact(source: Source, seed: int) -> dict[str, str]:
    """Return the fact that names the set of a seed; empty where it is in none."""
    name = source.set_name(seed) if isinstance(source, NamedSets) else ""
    return {SET: name} if name else {}


@dataclass(frozen=True, slots=True)
class _WorldCorpus:
    seed: int
    passages: int

    def open(self) -> Retriever:
        return _index(_world(self.seed, self.passages).passages)


@dataclass(frozen=True, slots=True)
class _FileCorpus:
    """The passages of one row of a question file, or of all."""

    path: str
    file_format: str
    row: int | None

    def open(self) -> Retriever:
        rows = _rows(self.path, self.file_format)
        chosen = rows if self.row is None else (rows[self.row],)
        passages = tuple(dict.fromkeys(one for question in chosen for one in question.passages))
        return _index(passages)


@dataclass(frozen=True, slots=True)
class _PassageFile:
    path: str

    def open(self) -> Retriever:
        from rltune_envs.multihop_qa.files_corpus import load_corpus

        return _index(load_corpus(self.path))


@lru_cache(maxsize=16384)
def question_of(source: Source, seed: int) -> Question:
    """Return the question of a seed; its gold answer has been checked.

    Raises:
        TaskError: Its own gold answer would not score.

    """
    question = source.question(seed)
    gold = question.answers[0]
    block = format_action(Action(ANSWER, gold), is_compact=False)
    parsed = parse_response(block, needs_think=False)
    if parsed is None or not exact_match(parsed.text, question.answers):
        raise TaskError(
            f"question {question.question_id}: its own gold answer {gold!r} does not score; it "
            "must hold a word or a number besides articles, and no tag. Repair or remove the row"
        )
    return question


@lru_cache(maxsize=65536)
def _cached_search(corpus: Corpus, query: str, k: int) -> tuple[Passage, ...]:
    return _shared(corpus).search(query, k=k)


def search(corpus: Corpus, query: str, *, k: int) -> tuple[Passage, ...]:
    """Return the passages of a corpus for a query; equal searches are made once.

    Raises:
        RetrieverError: There is no answer; the next call tries again.
        TaskError: A file of passages cannot be read.

    """
    if len(query) > _MAX_CACHED_QUERY:
        return _shared(corpus).search(query, k=k)
    return _cached_search(corpus, query, k)


_making = RLock()
"""Held while something is made that threads share: the others wait, and do not make it again."""


def _shared(corpus: Corpus) -> Retriever:
    with _making:
        return _retriever(corpus)


@lru_cache(maxsize=512)
def _retriever(corpus: Corpus) -> Retriever:
    return corpus.open()


def _world(seed: int, passages: int) -> World:
    with _making:
        return _made_world(seed, passages)


@lru_cache(maxsize=32)
def _made_world(seed: int, passages: int) -> World:
    return World(seed=seed, passages=passages)


def _rows(path: str, file_format: str) -> tuple[Question, ...]:
    """Return the questions of a file in a fixed random order."""
    with _making:
        return _read_rows(path, file_format)


@lru_cache(maxsize=_SETS)  # a trial may read as many files as there can be sets
def _read_rows(path: str, file_format: str) -> tuple[Question, ...]:
    from rltune_envs.multihop_qa.files import load_questions

    rows = list(load_questions(path, file_format=file_format))
    stream(f"multihop_qa/rows/{len(rows)}").shuffle(rows)
    return tuple(rows)


def _index(passages: Sequence[Passage]) -> Retriever:
    from rltune_envs.multihop_qa.bm25 import Bm25Retriever

    return Bm25Retriever(passages)
