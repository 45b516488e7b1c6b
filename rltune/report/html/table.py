"""Tables of the page as plain values; templates/macros.html writes them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

Cell = str | int | Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    """One table; its first column heads the rows."""

    caption: str  # what it shows
    headers: Sequence[Cell]  # one per column
    rows: Sequence[Sequence[Cell]]  # cells, one a column
    numeric: Collection[int] = ()  # columns that hold numbers
    ids: Sequence[str] = ()  # ids of the rows; none without


def marked(kind: str, text: str, **more: str) -> Cell:
    """Return a cell that stands out: `code`, `mark`, `tag`, or the state `ok`, `warn`, `bad`."""
    return {"kind": kind, "text": text, **more}


def rounded(value: float | None) -> str:
    """Return a measure to three decimals; a dash without one."""
    if value is None:
        return "–"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"


def signed(value: float | None) -> str:
    """Return a difference to three decimals with its sign; a dash without one."""
    return "–" if value is None else f"{value:+.3f}"
