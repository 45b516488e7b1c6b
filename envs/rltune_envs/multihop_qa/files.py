"""Question files of several benchmarks, as JSON list or JSON lines.

HotpotQA, MuSiQue, 2WikiMultihopQA, Bamboogle, and questions with `golden_answers` (NQ, TriviaQA,
PopQA).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rltune_envs.choices import require_choice
from rltune_envs.errors import TaskError
from rltune_envs.files_rows import RowError, as_row, read_rows, unusable
from rltune_envs.multihop_qa.files_formats import (
    ReadRow,
    read_2wiki,
    read_bamboogle,
    read_golden_answers,
    read_hotpotqa,
    read_hotpotqa_fullwiki,
    read_musique,
)
from rltune_envs.multihop_qa.records import Question


@dataclass(frozen=True, slots=True)
class _Format:
    """The reader of a format, and the sets of keys by which it is recognised."""

    read: ReadRow
    marks: tuple[frozenset[str], ...]


_FORMATS: Mapping[str, _Format] = {
    "hotpotqa": _Format(read_hotpotqa, (frozenset({"context", "supporting_facts"}),)),
    "musique": _Format(read_musique, (frozenset({"paragraphs", "question_decomposition"}),)),
    "2wiki": _Format(
        read_2wiki,
        (
            frozenset({"context", "supporting_facts", "evidences"}),
            frozenset({"paragraphs", "kind"}),
        ),
    ),
    "bamboogle": _Format(read_bamboogle, (frozenset({"Question"}),)),
    "golden_answers": _Format(read_golden_answers, (frozenset({"golden_answers"}),)),
    "hotpotqa_fullwiki": _Format(read_hotpotqa_fullwiki, (frozenset({"supporting_facts"}),)),
}
FILE_FORMATS = ("auto", *_FORMATS)
"""The names of `file_format`; `auto` looks at the keys of the first row."""


def load_questions(path: str | Path, *, file_format: str = "auto") -> tuple[Question, ...]:
    """Read a question file whole, in the order of the file.

    Args:
        path: One JSON list, or one JSON object a line.
        file_format: One of `FILE_FORMATS`.

    Raises:
        ValueError: There is no such format.
        TaskError: The file cannot be read, is of no known format, or holds rows that cannot be
            used; the first five are named with their reasons, and all are counted.

    """
    require_choice("file_format", file_format, FILE_FORMATS)
    rows = read_rows(path)
    name = _detect(path, *rows[0]) if file_format == "auto" else file_format
    read, stem = _FORMATS[name].read, Path(path).stem
    questions: dict[str, tuple[int, Question]] = {}
    reasons: dict[int, str] = {}
    for number, value in rows:
        try:
            question = read(as_row(value), f"{stem}:{number}")
            if question.question_id in questions:
                first, _ = questions[question.question_id]
                raise RowError(f"its id {question.question_id!r} is row {first}'s already")
            questions[question.question_id] = number, question
        except RowError as error:
            reasons[number] = str(error)
    if reasons:
        raise unusable(path, reasons, total=len(rows), kind=f"{name} questions")
    return tuple(question for _, question in questions.values())


def _detect(path: str | Path, number: int, value: object) -> str:
    """Return the format whose marks the first row has; of several, the one with the most."""
    try:
        keys = set(as_row(value))
    except RowError as error:
        raise TaskError(f"{path}:{number}: {error}") from error
    known = [
        (len(mark), name) for name, one in _FORMATS.items() for mark in one.marks if mark <= keys
    ]
    if known:
        return max(known)[1]
    allowed = "; ".join(
        f"{name} ({' or '.join(', '.join(sorted(mark)) for mark in one.marks)})"
        for name, one in _FORMATS.items()
    )
    raise TaskError(
        f"{path}:{number}: its keys {', '.join(sorted(keys)) or '(none)'} are "
        f"those of no format. The formats and their keys: {allowed}. Give file_format for an error "
        "that names the missing key."
    )
