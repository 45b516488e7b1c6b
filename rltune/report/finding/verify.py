"""Verify a finding: recompute everything on its page from its tables, and compare.

What is recomputed, each from what stands before it: the configs' identities and the grid of trials
from the sweep file; each trial's result from its gates; the estimates, tests and verdicts from the
trials; the page and the figures from all of these. Beside that, three records of one run must
agree: its tables, its lineage, its manifest. A folder that was doctored in one place is caught
there; one that was made up as a whole is caught by running a trial again (`verify --rerun`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any

from rltune.analysis.table_summary import summary_rows
from rltune.analysis.tables import Row
from rltune.errors import InputError
from rltune.report.figures.draw import has_matplotlib
from rltune.report.finding.chain import (
    gates_to_trials,
    lineage_to_trials,
    manifest_to_trials,
    pairs_to_trials,
    recorded_to_trials,
    sweep_to_trials,
)
from rltune.report.finding.figures import drawn, figures_of
from rltune.report.finding.files import PAGE, changed_files, read_finding, read_manifest
from rltune.report.finding.page import page
from rltune.report.finding.records import Finding
from rltune.report.finding.shown import other_drawing, other_title
from rltune.report.render import plural
from rltune.spec.problems import show

MOST = 5
"""Differences of one check that are named."""

UNREADABLE = (InputError, OSError, KeyError, TypeError, ValueError, AttributeError)
"""What is raised over records that somebody wrote by hand."""

SourcesAt = Callable[[str], str | None]
"""Commit -> digest of rltune's Python files there; None where this checkout does not know it."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was verified: what, what was found against it, and what could not be seen."""

    name: str
    problems: tuple[str, ...] = ()
    unseen: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing was found against it."""
        return not self.problems


def verify(folder: Path, *, sources_at: SourcesAt) -> tuple[Finding | None, list[Check]]:
    """Return the finding (None when it cannot be read) and what was verified.

    Raises:
        StoreError: The folder is no finding of this version.

    """
    outputs = read_manifest(folder)["outputs"]
    changed = changed_files(folder, outputs)
    files = Check(
        f"{plural(len(outputs), 'file')} as listed in manifest.json",
        tuple(f"{name} {why}" for name, why in changed.items()),
    )
    try:
        finding = read_finding(folder)
    except UNREADABLE as error:
        return None, [files, Check("tables", tuple(str(error).splitlines()))]
    checks = [files]
    try:
        for check in _checks(folder, finding, sources_at):
            checks.append(check)
    except UNREADABLE as error:
        what = f"a record cannot be read: {type(error).__name__}: {error}"
        checks.append(Check("what follows", (what,)))
    return finding, checks


def _checks(folder: Path, finding: Finding, sources_at: SourcesAt) -> Iterator[Check]:
    trials, gates = len(finding.trials), len(finding.gates)
    yield sweep_check(folder, finding)
    yield _check(f"configs and software of {plural(trials, 'trial')}", recorded_to_trials(finding))
    yield _check(f"results of the trials from {plural(gates, 'gate')}", gates_to_trials(finding))
    yield _check("tasks solved, seed by seed", pairs_to_trials(finding))
    yield _check("estimates, tests and verdicts from the trials", _summary(finding))
    yield lineage_check(finding)
    yield _check("audit and counts", manifest_to_trials(finding))
    yield sources_check(finding, sources_at)
    yield _check("every line of the page", _page(folder, finding))
    yield _figures(folder, finding)


def _check(name: str, problems: Iterator[str]) -> Check:
    found = list(problems)
    more = [f"and {len(found) - MOST} more"] if len(found) > MOST else []
    return Check(name, (*found[:MOST], *more))


def sweep_check(folder: Path, finding: Finding) -> Check:
    """Return whether the sweep file gives these trials and no others."""
    problems, unseen = sweep_to_trials(folder, finding)
    return Check("trials of the sweep file", tuple(problems), unseen)


def lineage_check(finding: Finding) -> Check:
    """Return whether the lineage of the run agrees."""
    if not finding.lineage_text:
        is_elsewhere = all(not row.lineage_id for row in finding.trials)
        missing = () if is_elsewhere else ("results.tsv is missing, and trials.csv names its rows",)
        return Check("lineage", missing, "the run kept its rows in another table")
    return _check(f"{plural(len(finding.lineage), 'row')} of lineage", lineage_to_trials(finding))


def sources_check(finding: Finding, sources_at: SourcesAt) -> Check:
    """Return whether the commit that the trials name has the Python files that they ran."""
    problems, unknown = [], []
    ran = {(row.code_rev, row.source_sha256) for row in finding.trials if row.code_rev}
    for commit, digest in sorted(ran):
        there = None if any(row.code_dirty for row in finding.trials) else sources_at(commit)
        if there is None:
            unknown.append(commit[:12])
        elif there != digest:
            problems.append(
                f"trials.csv: source_sha256 {digest[:12]}, but commit {commit[:12]} has "
                f"{there[:12]}"
            )
    unseen = f"this checkout does not know {', '.join(unknown)}" if unknown else ""
    return Check("code of the commit", tuple(problems), unseen)


def _summary(finding: Finding) -> Iterator[str]:
    again = summary_rows(finding.trials, ())
    key = ("condition", "at", "method")
    columns = finding.columns.get("summary")
    yield from row_differences("summary.csv", finding.summary, again, key, columns)


def row_differences(
    name: str,
    listed: Sequence[Row],
    again: Sequence[Row],
    key: Sequence[str],
    columns: Sequence[str] | None = None,
) -> Iterator[str]:
    """Yield every cell of a table that is not what comes out again, by the key of its row.

    `columns` are those that the table has; a later one proves nothing about it.
    """
    if len(listed) != len(again):
        yield f"{name}: {plural(len(listed), 'row')}, recomputed {len(again)}"
        return
    for old, new in zip(listed, again, strict=True):
        where = ", ".join(str(getattr(new, column)) for column in key)
        for column in columns or [one.name for one in fields(new)]:
            cells: tuple[Any, Any] = getattr(old, column), getattr(new, column)
            if cells[0] != cells[1]:
                yield f"{name}: {where}, {column}: {cells[0]}, recomputed {cells[1]}"


def leaf_differences(where: str, there: Any, again: Any) -> Iterator[str]:
    """Yield every value of nested JSON that is not what comes out again."""
    if isinstance(there, dict) and isinstance(again, dict):
        for key in dict.fromkeys((*there, *again)):
            yield from leaf_differences(f"{where}: {key}", there.get(key), again.get(key))
    elif isinstance(there, list) and isinstance(again, list) and len(there) == len(again):
        for i, (old, new) in enumerate(zip(there, again, strict=True)):
            yield from leaf_differences(f"{where}: {i}", old, new)
    elif there != again:
        yield f"{where}: {show(there)}, recomputed {show(again)}"


def _page(folder: Path, finding: Finding) -> Iterator[str]:
    path = folder / PAGE
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return line_differences(PAGE, text, page(finding))


def line_differences(name: str, text: str, again: str) -> Iterator[str]:
    """Yield every line of a text that is not what comes out again."""
    old, new = text.splitlines(), again.splitlines()
    for number, (there, ours) in enumerate(zip(old, new, strict=False), start=1):
        if there != ours:
            yield f"{name}:{number}: {_shortened(there, ours)}"
    if len(old) != len(new):
        yield f"{name}: {plural(len(old), 'line')}, recomputed {len(new)}"


def _shortened(there: str, ours: str) -> str:
    """Return two lines around their first difference."""
    pairs = enumerate(zip(there, ours, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(there), len(ours)))
    start = max(0, at - 40)
    head = "..." if start else ""
    cut = [f"'{head}{line[start : at + 40]}'" for line in (there, ours)]
    return f"{cut[0]}, recomputed {cut[1]}"


def _figures(folder: Path, finding: Finding) -> Check:
    expected = figures_of(finding)
    listed = {path.name for path in folder.glob("*.svg")}
    problems = [f"{one} is not a figure of these tables" for one in sorted(listed - set(expected))]
    problems += [f"{one} is missing" for one in sorted(set(expected) - listed)]
    there = {one: (folder / one).read_bytes() for one in expected if one in listed}
    before = str(read_manifest(folder).get("drawn_with", ""))
    if not has_matplotlib():
        problems += [text for one in there for text in other_title(one, there[one], expected[one])]
        return Check("figures", tuple(problems), "matplotlib is not installed: their titles alone")
    now = metadata.version("matplotlib")
    again = drawn(finding)
    for one, content in there.items():
        problems += other_drawing(one, content, again[one], is_exact=now == before)
    what = "" if now == before else f" by matplotlib {now}, {before} before, as they show"
    return Check(f"figures, drawn again{what}", tuple(problems))
