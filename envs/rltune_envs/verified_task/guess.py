"""What a file of problems probably means: its question, its answer, and the verifier for them."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase

from rltune_envs.errors import TaskError
from rltune_envs.files_rows import Row, RowError, texts_of
from rltune_envs.verified_task.table import read_table
from rltune_envs.verified_task.template import plain_text, require_columns
from rltune_envs.verifiers import Problem, make_verifier
from rltune_envs.verifiers.boxed import last_boxed
from rltune_envs.verifiers.number import answer_part, is_number_with_unit

QUESTIONS = ("question", "problem", "prompt", "query", "input", "instruction")
ANSWERS = (
    *("answer", "final_answer", "answerkey", "solution", "target", "gold", "label", "output"),
)
CHOICES = ("choices", "options", "candidates")
"""Names by which a column is known, the likeliest first; case does not count."""

GUESSED = ("number", "boxed", "multiple_choice", "exact")
"""Verifiers that need nothing but the columns."""

_LATEX = re.compile(r"[\\^{}]")
_MAX_WORDS, _MAX_CHARACTERS = 5, 60  # of an answer that can be compared as it stands


@dataclass(frozen=True, slots=True)
class Guess:
    """How a file is read.

    Attributes:
        question: Column that is asked.
        answer: Column of the gold answers.
        choices: Column of the choices; None without any.
        verifier: Name of the verifier, or the import path of a score function.
        because: Why this verifier, as the end of a sentence.
        columns: All columns of the file.
        n_rows: Its rows.

    """

    question: str
    answer: str
    choices: str | None
    verifier: str
    because: str
    columns: tuple[str, ...]
    n_rows: int


def guess_task(
    path: str,
    *,
    question: str | None = None,
    answer: str | None = None,
    verifier: str | None = None,
) -> Guess:
    """Return how a file of problems is probably meant.

    Args:
        path: The file: .jsonl, .json, .csv or .parquet.
        question: Column that is asked; None looks for it.
        answer: Column of the gold answers; None looks for it.
        verifier: Name or import path; None looks at the answers.

    Raises:
        TaskError: A column or the verifier cannot be guessed, or a row does not fit; it names the
            columns, or the row.

    """
    rows = read_table(path)
    columns = tuple(dict.fromkeys(name for _, row in rows for name in row))
    _require_known(path, columns, {"--question": question, "--answer": answer})
    asked = question or _column(path, columns, "question", QUESTIONS)
    told = answer or _column(path, columns, "answer", ANSWERS, but=asked)
    if asked == told:
        raise TaskError(
            f"{path}: question and answer are both the column {asked!r}; name another one of "
            f"{', '.join(columns)} with --question or --answer"
        )
    choices = _like(columns, CHOICES) if verifier in (None, "multiple_choice") else None
    problems = list(_problems(path, rows, asked, told, choices))
    kind, because = verifier or "", "as you said"
    if verifier is None:
        kind, because = _verifier(path, told, choices, problems, columns)
    _require_gold(kind, problems)
    kept = choices if kind == "multiple_choice" else None
    return Guess(asked, told, kept, kind, because, columns, len(rows))


def _require_known(path: str, columns: Collection[str], given: dict[str, str | None]) -> None:
    """Refuse a column that was named and does not exist."""
    for option, name in given.items():
        try:
            require_columns(option, [name] if name else [], columns)
        except RowError as error:
            raise TaskError(f"{path}: {error}") from error


def _like(columns: Collection[str], names: Sequence[str]) -> str | None:
    """Return the column with the likeliest of the names; None without any."""
    known = {column.strip().lower(): column for column in reversed(list(columns))}
    return next((known[name] for name in names if name in known), None)


def _column(
    path: str, columns: Collection[str], what: str, names: Sequence[str], *, but: str = ""
) -> str:
    column = _like([name for name in columns if name != but], names)
    if column is None:
        raise TaskError(
            f"{path}: none of its columns ({', '.join(columns) or 'none'}) is named like the "
            f"{what} ({', '.join(names)}); give --{what} COLUMN"
        )
    return column


def _problems(
    path: str, rows: Sequence[tuple[int, Row]], question: str, answer: str, choices: str | None
) -> Iterator[Problem]:
    """Yield the rows as problems.

    Raises:
        TaskError: A row has no text there; it is named.

    """
    for number, row in rows:
        place = f"{Path(path).name}:{number}"
        try:
            asked, told = plain_text(row, question), plain_text(row, answer)
        except RowError as error:
            action = "name other columns with --question and --answer, or repair the file"
            raise TaskError(f"{place}: {error}; {action}") from error
        yield Problem(asked, told, _choices(row, choices, place), row=row, place=place)


def _choices(row: Row, column: str | None, place: str) -> tuple[str, ...]:
    try:
        return tuple(texts_of(row, column)) if column else ()
    except RowError as error:
        action = "write the choices as a list of texts, or choose another verifier with --verifier"
        raise TaskError(f"{place}: {error}; {action}") from error


def _verifier(
    path: str,
    column: str,
    choices: str | None,
    problems: Sequence[Problem],
    columns: Collection[str],
) -> tuple[str, str]:
    """Return the verifier that fits all answers, and why."""
    if choices is not None:
        return "multiple_choice", f"each row has a list of {choices}"
    answers = [problem.answer for problem in problems]
    if letters := sorted({*answers}) if {*answers} <= {*ascii_uppercase} & {*columns} else []:
        raise TaskError(
            f"{path}: its choices stand in columns of their own ({', '.join(letters)}); write them "
            "as one column with a list of texts, in a .jsonl file"
        )
    for kind, fits, why in _FITS:
        if fits(answers) and all(_has_gold(kind, problem) for problem in problems):
            return kind, why
    longest = max(answers, key=len)
    raise TaskError(
        f"{path}: the answers in {column} are too long to be compared as they stand (the longest "
        f"has {len(longest)} characters: {longest[:40]!r}...); name another column with --answer, "
        "or write a function of (prompt, response, row) and give --verifier my_pkg.my_mod:score"
    )


def _are_numbers(answers: Sequence[str]) -> bool:
    return all(is_number_with_unit(answer_part(answer)) for answer in answers)


def _are_boxed(answers: Sequence[str]) -> bool:
    return all(last_boxed(answer) is not None for answer in answers)


def _are_latex(answers: Sequence[str]) -> bool:
    return any(map(_LATEX.search, answers)) and _are_short(answers)


def _are_short(answers: Sequence[str]) -> bool:
    return all(
        len(answer.split()) <= _MAX_WORDS and len(answer) <= _MAX_CHARACTERS for answer in answers
    )


_FITS: tuple[tuple[str, Callable[[Sequence[str]], bool], str], ...] = (
    ("number", _are_numbers, "all answers are numbers"),
    ("boxed", _are_boxed, r"all answers have a \boxed{}"),
    ("boxed", _are_latex, "some answers are formulas"),
    ("exact", _are_short, "all answers are short texts"),
)


def _has_gold(kind: str, problem: Problem) -> bool:
    try:
        make_verifier(kind).gold(problem)
    except RowError:
        return False
    return True


def _require_gold(kind: str, problems: Sequence[Problem]) -> None:
    """Refuse the first row whose answer the verifier cannot read.

    Raises:
        TaskError: It names the row, or the verifier, which is none.

    """
    if ":" in kind:
        return
    if kind not in GUESSED:
        raise TaskError(
            f"--verifier {kind}: give one of {', '.join(GUESSED)}, or my_pkg.my_mod:score; what "
            "else docs/tasks.md names has keys of its own, which are written into the sweep file"
        )
    verifier = make_verifier(kind)
    for problem in problems:
        try:
            verifier.gold(problem)
        except RowError as error:
            raise TaskError(f"{problem.place}: {error}") from error
