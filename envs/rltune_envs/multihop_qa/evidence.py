"""Which evidence of a question was read. Evidence is a passage, not a title.

A quarter of MuSiQue's questions come with several paragraphs of one title, of which one holds the
fact (HippoRAG issue 57).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from rltune_envs.multihop_qa.records import Passage, Question

_WORDS = 3  # in a row, by which two texts are compared
_SHARED = 0.5
_QUERY_WORDS = 40


def missing(retrieved: Collection[Passage], question: Question, *, is_exact: bool) -> list[Passage]:
    """Return the evidence that is not among what was retrieved.

    A passage is known by its title and its text, whatever case the title and whatever white space
    the text has. A corpus of other origin may hold another edition of it, or cut it elsewhere:
    there a passage that is none of the question's own counts as the evidence of its title if at
    least half of the shorter text's triples of words stand in the longer text.

    Args:
        retrieved: What was read.
        question: Whose evidence.
        is_exact: What is searched holds the question's own passages, so that none is alike.

    """
    own = {_key(passage) for passage in (*question.passages, *question.evidence)}
    read = set(map(_key, retrieved))
    strangers = [] if is_exact else [one for one in retrieved if _key(one) not in own]
    return [
        passage
        for passage in question.evidence
        if _key(passage) not in read and not any(_is_edition(one, passage) for one in strangers)
    ]


def queries(passages: Sequence[Passage], *, by_text: bool) -> Iterator[str]:
    """Yield what to search for to find passages: the title of each, then the start of its text.

    Args:
        passages: Wanted.
        by_text: Yield the text, too: a title may lead to another passage.

    """
    for passage in passages:
        title = _words(passage.title)
        yield title
        if by_text:
            yield " ".join(f"{title} {passage.text}".split()[:_QUERY_WORDS])


def supporting_recall(
    retrieved: Collection[Passage], question: Question, *, is_exact: bool
) -> float:
    """Return the share of the evidence that was retrieved; 0 where none is known."""
    n = len(question.evidence)
    return (n - len(missing(retrieved, question, is_exact=is_exact))) / n if n else 0.0


def _key(passage: Passage) -> tuple[str, str]:
    return _words(passage.title.casefold()), _words(passage.text)


def _words(text: str) -> str:
    return " ".join(text.split())


def _is_edition(one: Passage, other: Passage) -> bool:
    if _key(one)[0] != _key(other)[0]:
        return False
    triples, others = _triples(one.text), _triples(other.text)
    shorter = min(triples.total(), others.total())
    return shorter > 0 and (triples & others).total() >= _SHARED * shorter


def _triples(text: str) -> Counter[tuple[str, ...]]:
    words = text.casefold().split()
    return Counter(zip(*(words[start:] for start in range(_WORDS)), strict=False))
