"""Shared by all views: numbers as text, tables without boxes, findings with remedies."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from rltune.analysis.stats import Estimate
from rltune.comparability.findings import RULES, Finding, Severity
from rltune.maths.interval import Interval
from rltune.spec.problems import show
from rltune.types import TrialStatus

STATUS_STYLE = {
    TrialStatus.PENDING: "dim",
    TrialStatus.RUNNING: "cyan",
    TrialStatus.DONE: "green",
    TrialStatus.STOPPED_EARLY: "yellow",
    TrialStatus.FAILED: "bold red",
    TrialStatus.DIVERGED: "bold red",
    TrialStatus.INTERRUPTED: "yellow",
}
_SEVERITY_STYLE = {Severity.ERROR: "bold red", Severity.WARNING: "yellow"}
_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def rate(value: float | None) -> str:
    """Return a metric with three decimals; `-` when there is none."""
    return "-" if value is None or math.isnan(value) else f"{value:.3f}"


def signed(value: float) -> str:
    """Return a difference with its sign; `-` when there is none."""
    return "-" if math.isnan(value) else f"{value:+.3f}"


def interval(value: Interval | None, *, is_signed: bool = False) -> str:
    """Return `[0.41, 0.61]`, or nothing."""
    if value is None:
        return ""
    low, high = (f"{end:+.2f}" if is_signed else f"{end:.2f}" for end in value)
    return f"[{low}, {high}]"


def estimate(value: Estimate, *, joint: str, is_signed: bool = False) -> str:
    """Return a mean and, after `joint`, its interval."""
    mean = signed(value.mean) if is_signed else rate(value.mean)
    around = interval(value.interval, is_signed=is_signed)
    return f"{mean}{joint}{around}" if around else mean


def duration(seconds: float | None) -> str:
    """Return `2 h 5 min`: the two largest units."""
    if seconds is None:
        return "-"
    rest = round(seconds)
    parts: list[str] = []
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def stopwatch(seconds: float | None) -> str:
    """Return `0:41`, `12:05`, `1:02:45` (hours first) or `2d 04h`: for columns; `-` for none."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 24:
        return f"{hours // 24}d {hours % 24:02d}h"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def quantity(count: float) -> str:
    """Return a count with thousands separated: `12,288`."""
    return f"{count:,.0f}"


def size(count: float | None) -> str:
    """Return bytes as `13 MB`; `unknown` when there is none."""
    if count is None:
        return "unknown"
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def plural(count: int, noun: str) -> str:
    """Return `1 trial`, `2 trials`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def short_path(path: str | Path) -> str:
    """Return a path as a person in the working folder writes it."""
    whole = Path(path).absolute()
    here = Path.cwd()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(whole)


def line(text: str = "", style: str = "") -> Text:
    """Return a line that wraps at the width."""
    return Text(text, style=style)


def verbatim(text: str, style: str = "") -> Text:
    """Return a line that is never cut or wrapped: a path or a command to copy."""
    return Text(text, style=style, no_wrap=True, overflow="ignore")


@dataclass(frozen=True, slots=True)
class _Indented:
    """A drawing further right. Unlike rich's Padding it cuts no line that is too long."""

    item: RenderableType
    columns: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield each line of the drawing after its blanks."""
        inner = options.update(width=max(1, options.max_width - self.columns))
        for drawn in Segment.split_lines(console.render(self.item, inner)):
            yield from (Segment(" " * self.columns), *drawn, Segment.line())


def indent(item: RenderableType, columns: int = 2) -> RenderableType:
    """Return a drawing further right."""
    return _Indented(item, columns)


def grid(
    headers: Sequence[str], *, right: Iterable[int] = (), whole: Iterable[int] = (), gap: int = 2
) -> Table:
    """Return a table without boxes, whose lines may be longer than a narrow terminal.

    Args:
        headers: One a column.
        right: Columns that hold numbers.
        whole: Columns that never wrap: ids to copy.
        gap: Blanks between columns.

    """
    table = _Grid(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold")
    numeric, unbroken = set(right), set(whole)
    for i, header in enumerate(headers):
        justify = "right" if i in numeric else "left"
        table.add_column(header, justify=justify, overflow="fold", no_wrap=i in unbroken)  # type: ignore[arg-type]
    table.leave_room(headers)
    return table


class _Grid(Table):
    """A table that breaks no number, and no word into letters: a digit a line cannot be read."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row whose words have room."""
        super().add_row(*cells, **options)
        self.leave_room(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table; where the terminal has no room for its words, wider than that."""
        needed = sum((one.min_width or 0) + self.padding[1] for one in self.columns)
        wide = options.update_width(max(options.max_width, needed))
        yield from super().__rich_console__(console, wide)

    def leave_room(self, cells: Sequence[RenderableType | None]) -> None:
        """Make columns as wide as the longest word of cells; of text a dozen letters suffice."""
        for column, cell in zip(self.columns, cells, strict=False):
            words = cell.split() if isinstance(cell, str) else ()
            longest = max(map(cell_len, words), default=0)
            is_whole = column.justify == "right" or column.no_wrap
            wanted = longest if is_whole else min(longest, _SHORT_WORD)
            column.min_width = max(column.min_width or 0, wanted)


_SHORT_WORD = 12


MOST_COLUMNS = 3
"""Keys that a table has a column each for; more are written out a condition."""
LONGEST_CELL = 20
"""Longest value that stands in a column of its own, in characters."""


def fits_columns(rows: Iterable[Mapping[str, object]]) -> bool:
    """Return whether settings (dotted key -> value) are few and short enough for a column each."""
    settings = list(rows)
    keys = {key for own in settings for key in own}
    cells = [show(value) for own in settings for value in own.values()]
    return len(keys) <= MOST_COLUMNS and all(len(cell) <= LONGEST_CELL for cell in cells)


def pairs(settings: Mapping[str, object]) -> str:
    """Return settings as `key: value, key: value`."""
    return ", ".join(f"{key}: {show(value)}" for key, value in settings.items())


def finding(item: Finding) -> RenderableType:
    """Return a finding with its remedy and the reason for which it was accepted."""
    head = Text.assemble(
        (f"{item.code or item.rule} {item.severity.value}", _SEVERITY_STYLE[item.severity]),
        f" {item.message}",
    )
    parts: list[RenderableType] = [head, indent(line(f"remedy: {item.remedy}"))]
    if item.accepted_reason:
        parts.append(indent(line(f"accepted: {item.accepted_reason}", "green")))
    return Group(*parts)


def rules_table(
    rules: Iterable[str], findings: Sequence[Finding], is_checked: bool = True
) -> RenderableType:
    """Return a line per rule: its name, what was found of it, what it holds."""
    table = grid(("", "", ""), gap=1)
    table.show_header = False
    for rule in rules:
        own = [item for item in findings if item.rule == rule]
        table.add_row(rule, _state(own) if is_checked else Text("-"), RULES[rule])
    return table


def _state(findings: Sequence[Finding]) -> Text:
    if any(item.severity is Severity.ERROR for item in findings):
        return Text("ERROR", style="bold red")
    if any(not item.accepted_reason for item in findings):
        return Text("warning", style="yellow")
    return Text("accepted" if findings else "ok", style="green")
