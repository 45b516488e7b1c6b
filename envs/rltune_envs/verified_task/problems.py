"""From files to problems: each row checked, in one split, and told apart by its content."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from rltune_envs.draw import PARTS, part_of
from rltune_envs.errors import TaskError
from rltune_envs.files_rows import Row, RowError, texts_of, unusable
from rltune_envs.verified_task.table import read_table
from rltune_envs.verified_task.template import columns_of, fill, plain_text, require_columns
from rltune_envs.verifiers import Problem, Verifier, make_verifier
from rltune_envs.verifiers.exact import normal_text


@dataclass(frozen=True, slots=True)
class Columns:
    """How a row is read.

    Attributes:
        template: The prompt, with names of columns in braces.
        answer: Column of the gold answer; None where the verifier reads the row itself.
        choices: Column of the choices, a list of texts; None without any.
        id: Column of a name that no two rows share; None without one.

    """

    template: str
    answer: str | None
    choices: str | None
    id: str | None


@dataclass(frozen=True, slots=True)
class Source:
    """Where problems are, as a value: equal ones are read once.

    Attributes:
        files: Part -> file; parts without one take a share of the rows of `train`.
        shares: Part -> its share of the rows of `train`, by content.
        columns: How a row is read.

    """

    files: tuple[tuple[str, str], ...]
    shares: tuple[tuple[str, float], ...]
    columns: Columns


Stamp = tuple[tuple[int, int] | None, ...]
"""Time of change and size of each file; None where it cannot be read."""


def stamp_of(source: Source) -> Stamp:
    """Return the stamp of a source's files as they are now."""
    return tuple(_stamp(path) for _, path in source.files)


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


class FileProblems:
    """The problems of files, read when they are first asked for.

    Args:
        source: The files.
        kind: Name or import path of the verifier.
        options: Its options, as a JSON object.

    """

    has_answers = True

    def __init__(self, source: Source, kind: str, options: str) -> None:
        self._source = source
        self._kind = kind
        self._options = options

    @cached_property
    def all(self) -> "Problems":
        """All of them, as the files are when they are first asked for.

        Raises:
            TaskError: A file, or a row, cannot be used; it is named.

        """
        return load_problems(self._source, self._kind, self._options, stamp_of(self._source))

    def of(self, seed: int) -> Problem:
        """Return the problem of a seed."""
        problems = self.all.problems
        return problems[seed % len(problems)]

    def digests(self) -> dict[str, str]:
        """Return `PART: FILE` -> sha256 of each file, read anew; the folder does not count."""
        return {f"{part}: {Path(path).name}": _sha256(path) for part, path in self._source.files}


def _sha256(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise TaskError(f"{path}: cannot be read: {error.strerror or error}") from error


@dataclass(frozen=True, slots=True)
class Problems:
    """The problems of all splits, each split in the order of its content hashes.

    Attributes:
        problems: All of them: those of `train` first, then `heldout`, then `test`.
        sizes: Part -> number of its problems.
        n_repeated: Rows that were left out because an earlier row asks and answers the same.

    """

    problems: tuple[Problem, ...]
    sizes: Mapping[str, int]
    n_repeated: int

    def seeds(self, part: str) -> range:
        """Return the seeds of the tasks of a part."""
        start = sum(self.sizes[one] for one in PARTS[: PARTS.index(part)])
        return range(start, start + self.sizes[part])


def content_of(problem: Problem) -> str:
    """Return what makes a problem the same as another: prompt and choices, in one spelling."""
    return "\n".join(map(normal_text, (problem.prompt, *problem.choices)))


def near_of(problem: Problem) -> str:
    """Return what near-duplicates share: the words of the prompt, without case and numbers."""
    text = unicodedata.normalize("NFKC", problem.prompt).casefold()
    return " ".join(re.findall(r"[^\W\d_]+|\d+", re.sub(r"\d+(?:[.,]\d+)*", "0", text)))


def hash_of(problem: Problem) -> str:
    """Return the sha256 of the content."""
    return hashlib.sha256(content_of(problem).encode()).hexdigest()


@lru_cache(maxsize=64)
def verifier_of(kind: str, options: str) -> Verifier:
    """Return the verifier of a name or import path, and of its options as a JSON object."""
    return make_verifier(kind, json.loads(options))


@lru_cache(maxsize=8)
def load_problems(source: Source, kind: str, options: str, stamp: Stamp) -> Problems:
    """Read all files of a source.

    Args:
        source: The files.
        kind: Name of the verifier, which must be able to read every gold answer.
        options: Its options, as a JSON object.
        stamp: Of the files, so that a file that has changed is read again.

    Raises:
        TaskError: A file cannot be used, two rows have one id, or ask the same with different
            answers, or a problem is in the files of two splits; rows are named.

    """
    gold = verifier_of(kind, options).gold
    parts: dict[str, list[Problem]] = {part: [] for part in PARTS}
    known: dict[str, tuple[str, Problem]] = {}
    n_repeated = 0
    for part, path in source.files:
        for problem in _read(path, source.columns, gold):
            digest = hash_of(problem)
            before = known.setdefault(digest, (part, problem))
            if before[1] is problem:
                own = part_of(digest, source.shares) if part == "train" else part
                parts[own].append(problem)
            else:
                _require_same(before, part, problem, source.columns)
                n_repeated += 1
    ordered = [sorted(parts[part], key=hash_of) for part in PARTS]
    sizes = {part: len(parts[part]) for part in PARTS}
    return Problems(tuple(one for part in ordered for one in part), sizes, n_repeated)


def _require_same(
    before: tuple[str, Problem], part: str, problem: Problem, columns: Columns
) -> None:
    """Refuse a repeated problem that has another answer, or is in the file of another split.

    Where no column is the answer, the verifier may read all of them, but for the id.
    """
    first_part, first = before
    names = sorted({*problem.row, *first.row} - {columns.id})
    other = [name for name in names if problem.row.get(name) != first.row.get(name)]
    if columns.answer is None and other:
        raise TaskError(
            f"{problem.place}: it asks the same as {first.place}, with another {other[0]}, which "
            "its verifier may read; remove one of them, or show what differs in env.template"
        )
    if first.answer != problem.answer:
        raise TaskError(
            f"{problem.place}: it asks the same as {first.place}, with the answer "
            f"{problem.answer!r:.60} in place of {first.answer!r:.60}; remove or repair one of them"
        )
    if first_part != part:
        raise TaskError(
            f"{problem.place}: this problem of {part} is also in {first_part}, as {first.place}; "
            "remove it from one of the files: what is trained on must not be measured on"
        )


def _read(path: str, columns: Columns, gold: Callable[[Problem], str]) -> list[Problem]:
    """Return the problems of a file, in its order.

    Raises:
        TaskError: Rows cannot be used; the first five are named with their reasons.

    """
    rows = read_table(path)
    reasons: dict[int, str] = {}
    problems, ids = [], dict[str, int]()
    for number, row in rows:
        try:
            if columns.id is not None:
                _require_new_id(row, columns.id, number, ids)
            problems.append(_problem(row, f"{Path(path).name}:{number}", columns, gold))
        except RowError as error:
            reasons[number] = str(error)
    if reasons:
        raise unusable(path, reasons, total=len(rows), kind="problems")
    return problems


def _require_new_id(row: Row, column: str, number: int, ids: dict[str, int]) -> None:
    require_columns("env.id_column", (column,), row)
    name = plain_text(row, column)
    if (first := ids.setdefault(name, number)) != number:
        raise RowError(f"its {column} {name!r:.40} is row {first}'s already; give it another")


def _problem(row: Row, place: str, columns: Columns, gold: Callable[[Problem], str]) -> Problem:
    require_columns("in env.template", columns_of(columns.template), row)
    given: dict[str, Any] = {}
    if columns.answer is not None:
        require_columns("env.answer_column", (columns.answer,), row)
        given["answer"] = plain_text(row, columns.answer)
    if columns.choices is not None:
        require_columns("env.choices_column", (columns.choices,), row)
        given["choices"] = tuple(texts_of(row, columns.choices))
    problem = Problem(
        fill(columns.template, row), given.pop("answer", ""), **given, row=row, place=place
    )
    gold(problem)
    return problem
