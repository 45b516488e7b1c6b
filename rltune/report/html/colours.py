"""How a condition looks on the whole page: a colour, a dash, a mark. Classes of report.css."""

from rltune.report.html.markup import Html, el

COLOURS = 7
"""Colours of report.css; the first is the control's where it is planned first."""

_DASHES = ("", "7 3", "9 3 2 3", "4 3")  # even, odd; then those whose colours come again
_MARKS = ("circle", "square", "diamond", "up", "down", "cross", "bar")


def colour(index: int) -> str:
    """Return the class of a condition's colour."""
    return f"c{index % COLOURS}"


def dash(index: int) -> str | None:
    """Return the dashes of a condition's line, which tell it apart without colour."""
    return _DASHES[index % 2 + 2 * (index // COLOURS % 2)] or None


def mark(index: int, x: float, y: float, *, size: float = 4.0) -> Html:
    """Return the mark of a condition, centred on a place."""
    kind, s = _MARKS[index % len(_MARKS)], size
    if kind == "circle":
        return el("circle", cx=x, cy=y, r=s)
    paths = {
        "square": f"M{x - s:g} {y - s:g}h{2 * s:g}v{2 * s:g}h{-2 * s:g}z",
        "diamond": f"M{x:g} {y - 1.3 * s:g}l{1.3 * s:g} {1.3 * s:g}l{-1.3 * s:g} {1.3 * s:g}"
        f"l{-1.3 * s:g} {-1.3 * s:g}z",
        "up": f"M{x:g} {y - 1.2 * s:g}l{1.2 * s:g} {2.1 * s:g}h{-2.4 * s:g}z",
        "down": f"M{x:g} {y + 1.2 * s:g}l{1.2 * s:g} {-2.1 * s:g}h{-2.4 * s:g}z",
        "cross": f"M{x - s:g} {y - s / 3:g}h{2 * s / 3:g}v{-2 * s / 3:g}h{2 * s / 3:g}"
        f"v{2 * s / 3:g}h{2 * s / 3:g}v{2 * s / 3:g}h{-2 * s / 3:g}v{2 * s / 3:g}"
        f"h{-2 * s / 3:g}v{-2 * s / 3:g}h{-2 * s / 3:g}z",
        "bar": f"M{x - s / 2:g} {y - 1.3 * s:g}h{s:g}v{2.6 * s:g}h{-s:g}z",
    }
    return el("path", d=paths[kind])


def swatch(index: int) -> Html:
    """Return the sample of a condition for a legend; its label stands beside it."""
    line = el("path", d="M1 8h28", class_="mean", stroke_dasharray=dash(index))
    return el(
        "svg",
        el("g", line, mark(index, 15, 8), class_=colour(index)),
        class_="swatch",
        viewBox="0 0 30 16",
        aria_hidden="true",
    )
