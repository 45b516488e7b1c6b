"""One row of each file format as a `Question`.

An alias that is empty once normalised is dropped, since an empty answer would match it. Questions
that offer choices have them as `candidates`: what a guess without reading draws from.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from rltune_envs.files_rows import (
    Row,
    RowError,
    as_row,
    kind_of,
    list_of,
    number_of,
    text_of,
    texts_of,
    value_of,
)
from rltune_envs.multihop_qa.records import Hop, Passage, Question
from rltune_envs.multihop_qa.verifiers import contains_words, normalize_answer

ReadRow = Callable[[Row, str], Question]
"""Makes a question of a row; the text is its id where the row has no id."""

_Item = TypeVar("_Item", str, Passage)
_HOPS_IN_ID = re.compile(r"((\d)hop\d?)__")


def read_hotpotqa(row: Row, place: str) -> Question:
    """Read HotpotQA: lists of pairs as first published, or columns as in data set hubs.

    Raises:
        RowError: The row cannot be used.

    """
    passages = _context(row)
    evidence = _unique([_with_title(title, passages) for title in _supporting(row)])
    return _question(
        row,
        place,
        answers=[text_of(row, "answer")],
        kind=text_of(row, "type"),
        hops=len(evidence),
        evidence=evidence,
        passages=passages,
    )


def read_hotpotqa_fullwiki(row: Row, place: str) -> Question:
    """Read HotpotQA's full-wiki rows: the passages beside a question are what a search found.

    They may lack the evidence, so neither they nor evidence become part of the question; it is
    played on a file of passages or on a server.

    Raises:
        RowError: The row cannot be used.

    """
    return _question(
        row,
        place,
        answers=[text_of(row, "answer")],
        kind=text_of(row, "type"),
        hops=len(_supporting(row)),
    )


def read_2wiki(row: Row, place: str) -> Question:
    """Read 2WikiMultihopQA: as first published, or rows with `paragraphs` that say which support.

    Its aliases are in a separate file and are not read. The evidence triples become the
    decomposition if all of their subjects are titles of supporting passages.

    Raises:
        RowError: The row cannot be used.

    """
    if "paragraphs" in row:
        return _read_2wiki_paragraphs(row, place)
    question = read_hotpotqa(row, place)  # the same layout, with evidence
    return replace(question, decomposition=_triples(row, question.supporting))


def _read_2wiki_paragraphs(row: Row, place: str) -> Question:
    passages, evidence = [], []
    for one in map(as_row, list_of(row, "paragraphs")):
        passages.append(Passage(text_of(one, "title"), text_of(one, "text")))
        if value_of(one, "is_supporting") is True:
            evidence.append(passages[-1])
    return _question(
        row,
        place,
        answers=[text_of(row, "answer")],
        kind=text_of(row, "kind"),
        hops=len(_unique(evidence)),
        evidence=_unique(evidence),
        passages=tuple(passages),
    )


def read_musique(row: Row, place: str) -> Question:
    """Read MuSiQue; its kind is the shape in its id (`2hop`, `3hop1`), `#1` becomes the answer.

    Raises:
        RowError: The row cannot be used, or is not answerable.

    """
    if row.get("answerable") is False:
        raise RowError(
            "answerable is false: its passages do not hold the answer; use the answerable rows only"
        )
    passages = {}
    for one in map(as_row, list_of(row, "paragraphs")):
        passage = Passage(text_of(one, "title"), text_of(one, "paragraph_text"))
        passages[number_of(one, "idx")] = passage
    steps = _steps(row, passages)
    hops = tuple(hop for hop, _ in steps)
    aliases = texts_of(row, "answer_aliases") if "answer_aliases" in row else []
    shape = _HOPS_IN_ID.match(str(row.get("id", "")))
    if shape and int(shape[2]) != len(hops):
        raise RowError(f"id says {shape[1]}, question_decomposition has {len(hops)} steps")
    return _question(
        row,
        place,
        answers=[text_of(row, "answer"), *aliases],
        kind=shape[1] if shape else f"{len(hops)}hop",
        hops=len(hops),
        evidence=_unique([passage for _, passage in steps]),
        passages=tuple(passages.values()),
        decomposition=hops,
    )


def read_bamboogle(row: Row, place: str) -> Question:
    """Read Bamboogle: two-hop questions without passages.

    Raises:
        RowError: The row cannot be used.

    """
    key = "Answer" if "Answer" in row else "answer"
    is_list = isinstance(value_of(row, key), list)
    answers = texts_of(row, key) if is_list else [text_of(row, key)]
    if not answers:
        raise RowError(f"{key} is an empty list")
    renamed = {**row, "question": text_of(row, "Question")}
    return _question(renamed, place, answers=answers, kind="compositional", hops=2)


def read_golden_answers(row: Row, place: str) -> Question:
    """Read a question with its right answers, as NQ, TriviaQA and PopQA are shared by benchmarks.

    The first answer that holds a word is the gold answer. Nothing says how many facts it takes.

    Raises:
        RowError: The row cannot be used.

    """
    answers = texts_of(row, "golden_answers")
    usable = [answer for answer in answers if normalize_answer(answer)]
    if not usable:
        raise RowError(
            f"golden_answers {answers!r} holds no answer with a word once punctuation and articles "
            "are dropped"
        )
    return _question(row, place, answers=usable, kind="open", hops=0)


def _question(
    row: Row,
    place: str,
    *,
    answers: Sequence[str],
    kind: str,
    hops: int,
    evidence: tuple[Passage, ...] = (),
    passages: tuple[Passage, ...] | None = None,
    decomposition: tuple[Hop, ...] = (),
) -> Question:
    """Make the question after the checks of all formats; `passages` None: the format has none."""
    text = text_of(row, "question")
    if not normalize_answer(answers[0]):
        raise RowError(
            f"the answer {answers[0]!r} is empty once punctuation and articles are dropped"
        )
    if passages is not None and not evidence:
        raise RowError("it names no supporting passage")
    usable = _unique([answer.strip() for answer in answers if normalize_answer(answer)])
    return Question(
        question_id=_id(row, place),
        text=text,
        answers=usable,
        kind=kind,
        hops=hops,
        evidence=evidence,
        decomposition=decomposition,
        passages=passages or (),
        candidates=_candidates(text, kind, usable[0], [one.title for one in evidence]),
    )


def _id(row: Row, place: str) -> str:
    """Return the row's own id, else its place."""
    for key in ("_id", "id"):
        if key in row:
            value = row[key]
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise RowError(f"{key} must be text or a number, it is {kind_of(value)}")
            return str(value)
    return place


def _candidates(text: str, kind: str, gold: str, supporting: Sequence[str]) -> tuple[str, ...]:
    """Return the choices that the question offers, if the answer is one of at least two."""
    if normalize_answer(gold) in ("yes", "no"):
        return ("yes", "no")
    if "comparison" not in kind:
        return ()
    names = [re.sub(r"\s*\([^()]*\)$", "", title) for title in supporting]
    offered = _unique([name for name in names if contains_words(_words(text), _words(name))])
    is_offered = normalize_answer(gold) in map(normalize_answer, offered)
    return offered if is_offered and len(offered) > 1 else ()


def _supporting(row: Row) -> tuple[str, ...]:
    """Return the titles of `supporting_facts`, once each, in order."""
    value = value_of(row, "supporting_facts")
    if isinstance(value, dict):
        return _unique([title.strip() for title in texts_of(value, "title")])
    facts = list_of(row, "supporting_facts")
    return _unique([_titled(fact, "supporting_facts")[0] for fact in facts])


def _with_title(title: str, passages: Sequence[Passage]) -> Passage:
    """Return the only passage with a title."""
    titled = _unique([passage for passage in passages if passage.title == title])
    if not titled:
        raise RowError(
            f"the supporting title {title!r} is not among its passages; full-wiki rows need "
            "file_format hotpotqa_fullwiki"
        )
    if len(titled) > 1:
        raise RowError(
            f"the supporting title {title!r} is that of {len(titled)} different passages, so that "
            "the evidence is ambiguous; give them different titles"
        )
    return titled[0]


def _context(row: Row) -> tuple[Passage, ...]:
    """Return the passages of `context`, their sentences joined by one blank."""
    value = value_of(row, "context")
    if isinstance(value, dict):
        titles, sentences = texts_of(value, "title"), list_of(value, "sentences")
        if len(titles) != len(sentences):
            raise RowError(f"context has {len(titles)} titles and {len(sentences)} sentence lists")
        pairs = [(title.strip(), part) for title, part in zip(titles, sentences, strict=True)]
    else:
        pairs = [_titled(pair, "context") for pair in list_of(row, "context")]
    if not pairs:
        raise RowError("context holds no passage")
    return tuple(Passage(title, _joined(part)) for title, part in pairs)


def _titled(pair: object, key: str) -> tuple[str, object]:
    """Return a `[title, something]` pair."""
    if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
        raise RowError(f"{key} must hold pairs that begin with a title, it holds {kind_of(pair)}")
    return pair[0].strip(), pair[1]


def _joined(sentences: object) -> str:
    parts = texts_of({"the sentences of context": sentences}, "the sentences of context")
    return " ".join(part.strip() for part in parts if part.strip())


def _triples(row: Row, supporting: Sequence[str]) -> tuple[Hop, ...]:
    """Return the evidence triples as hops; none unless all of them have their passage."""
    hops = []
    for triple in list_of(row, "evidences"):
        parts = texts_of({"evidences": triple}, "evidences")
        if len(parts) != 3:
            raise RowError(f"evidences must hold triples, it holds a list of {len(parts)}")
        subject, relation, value = (part.strip() for part in parts)
        hops.append(Hop(f"{subject} >> {relation}", value, subject))
    return tuple(hops) if all(hop.title in supporting for hop in hops) else ()


def _steps(row: Row, passages: Mapping[int, Passage]) -> tuple[tuple[Hop, Passage], ...]:
    """Return MuSiQue's steps and their passages; earlier answers replace `#1`, `#2`."""
    steps: list[tuple[Hop, Passage]] = []
    for step in map(as_row, list_of(row, "question_decomposition")):
        place = number_of(step, "paragraph_support_idx")
        if place not in passages:
            raise RowError(f"paragraph_support_idx {place} is not among its paragraphs")
        text = _filled(text_of(step, "question"), [hop.answer for hop, _ in steps])
        hop = Hop(text, text_of(step, "answer"), passages[place].title)
        steps.append((hop, passages[place]))
    if not steps:
        raise RowError("question_decomposition is empty")
    return tuple(steps)


def _filled(text: str, answers: Sequence[str]) -> str:
    """Replace `#1`, `#2` by the answers; a number beyond them is text."""
    known = {f"#{number}": answer for number, answer in enumerate(answers, start=1)}
    return re.sub(r"#\d+", lambda match: known.get(match[0], match[0]), text)


def _words(text: str) -> str:
    """Return the words of a text with a blank between them: "Ada Bell's" are three."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def _unique(items: Sequence[_Item]) -> tuple[_Item, ...]:
    return tuple(dict.fromkeys(items))
