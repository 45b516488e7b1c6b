"""Numbers and tables of a finding's page, as Markdown."""

from collections.abc import Collection, Iterable, Sequence

from rltune.maths.interval import Interval
from rltune.report.markdown import inline

DASH, MINUS = "–", "\u2212"
LONGEST = 2000
"""Characters of a message on the page."""


def value(number: float | None, digits: int = 3) -> str:
    """Return a number with three decimals, a dash without one."""
    return DASH if number is None else f"{number:.{digits}f}".replace("-", MINUS)


def signed(number: float | None, digits: int = 3) -> str:
    """Return a difference with its sign."""
    return DASH if number is None else f"{number:+.{digits}f}".replace("-", MINUS)


def compact(number: float | None, *, is_signed: bool = False) -> str:
    """Return a measure of any size with three significant digits."""
    if number is None:
        return DASH
    return (f"{number:+.3g}" if is_signed else f"{number:.3g}").replace("-", MINUS)


def around(low: float | None, high: float | None, *, is_signed: bool = False) -> str:
    """Return an interval in brackets, with a blank before it; nothing without one."""
    if low is None or high is None:
        return ""
    text = signed if is_signed else value
    return f" [{text(low)}, {text(high)}]"


def compact_around(interval: Interval | None, *, is_signed: bool = False) -> str:
    """Return the interval of a measure of any size likewise."""
    if interval is None:
        return ""
    low, high = (compact(end, is_signed=is_signed) for end in interval)
    return f" [{low}, {high}]"


def p_cell(p: float | None) -> str:
    """Return a p value with three decimals."""
    return DASH if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def code(text: str) -> str:
    """Return a name as code; one with a backtick is plain text."""
    return inline(text, LONGEST) if "`" in text or "|" in text or "\n" in text else f"`{text}`"


def plain(text: str) -> str:
    """Return a message as text that Markdown leaves alone."""
    return inline(text, LONGEST)


def table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], *, numeric: Collection[int] = ()
) -> str:
    """Return a table, numbers to the right."""
    rule = ["---:" if i in numeric else "---" for i in range(len(headers))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headers, rule, *rows))


def bullets(lines: Iterable[str]) -> str:
    """Return a list."""
    return "\n".join(f"- {line}" for line in lines)


def seconds(number: float) -> str:
    """Return a time as `2 h 05 min`, `12 min` or `41 s`."""
    if number < 120:
        return f"{number:.0f} s"
    hours, minutes = divmod(round(number / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"
