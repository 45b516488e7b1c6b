"""The retrieved part of a question's evidence. Evidence is a passage, not a title.

A quarter of MuSiQue's questions have several paragraphs of one title, only one of which holds the
fact (HippoRAG issue 57).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from rltune_envs.multihop_qa.protocol import one_line
from rltune_envs.multihop_qa.records import Passage, Question
from rltune_envs.multihop_qa.words import first_units, units

_WORDS = 3  # in a row, by which two texts are compared
_SHARED = 0.5
_QUERY_WORDS = 40


def missing(retrieved: Collection[Passage], question: Question, *, is_exact: bool) -> list[Passage]:
    """Return the evidence that has not been retrieved.

    Passages are equal if titles (case aside) and texts (white space aside) are. A corpus of another
    origin may hold another edition of a passage, or cut it elsewhere: a passage of such a corpus
    counts as the evidence of its title if at least half of the shorter text's triples of words
    occur in the longer text.

    Args:
        retrieved: Passages that were retrieved.
        question: The question.
        is_exact: The corpus holds the question's own passages, so only equal ones count.

    """
    known = {_key(passage) for passage in (*question.passages, *question.evidence)}
    read = set(map(_key, retrieved))
    editions = [] if is_exact else [one for one in retrieved if _key(one) not in known]
    return [
        passage
        for passage in question.evidence
        if _key(passage) not in read and not any(_is_edition(one, passage) for one in editions)
    ]


def queries(passages: Sequence[Passage], *, by_text: bool) -> Iterator[str]:
    """Yield queries that find passages: the title of each, then the start of its text.

    Args:
        passages: What is to be found.
        by_text: Yield the text as well: a title may lead to another passage.

    """
    for passage in passages:
        title = one_line(passage.title)
        yield title
        if by_text:
            yield first_units(f"{title} {passage.text}", _QUERY_WORDS)


def supporting_recall(
    retrieved: Collection[Passage], question: Question, *, is_exact: bool
) -> float:
    """Return the share of the evidence that was retrieved; 0 where none is known."""
    n = len(question.evidence)
    return (n - len(missing(retrieved, question, is_exact=is_exact))) / n if n else 0.0


def _key(passage: Passage) -> tuple[str, str]:
    return one_line(passage.title.casefold()), one_line(passage.text)


def _is_edition(one: Passage, other: Passage) -> bool:
    if _key(one)[0] != _key(other)[0]:
        return False
    triples, others = _triples(one.text), _triples(other.text)
    shorter = min(triples.total(), others.total())
    return shorter > 0 and (triples & others).total() >= _SHARED * shorter


def _triples(text: str) -> Counter[tuple[str, ...]]:
    words = units(text.casefold())
    return Counter(zip(*(words[start:] for start in range(_WORDS)), strict=False))
