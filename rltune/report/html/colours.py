"""The colour, dash and mark of each condition on the page, as classes of report.css."""

from collections.abc import Iterable

from rltune.report.figures.records import Condition
from rltune.report.html.markup import Html, el

COLOURS = 6
"""Colours of report.css beside the control's: the hues and their order are the figures' own."""

_DASHES = ("7 3", "9 3 2 3", "4 3", "")
_MARKS = ("square", "up", "diamond", "down", "cross", "bar")


def ordered(conditions: Iterable[Condition]) -> list[Condition]:
    """Return conditions with the control first; the place of one decides how it looks."""
    return sorted(conditions, key=lambda one: not one.is_control)


def colour(place: int) -> str:
    """Return the class of a condition's colour."""
    return f"c{1 + (place - 1) % COLOURS}" if place else "c0"


def dash(place: int) -> str | None:
    """Return the dashes of a condition's line, which tell it apart without colour."""
    return _DASHES[(place - 1) % len(_DASHES)] or None if place else None


def mark(place: int, x: float, y: float, *, size: float = 4.0) -> Html:
    """Return the mark of a condition, centred on a place."""
    kind, s = _MARKS[(place - 1) % len(_MARKS)], size
    if not place:
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


def swatch(place: int) -> Html:
    """Return the sample of a condition for a legend; its label stands beside it."""
    line = el("path", d="M1 8h28", class_="mean", stroke_dasharray=dash(place))
    return el(
        "svg",
        el("g", line, mark(place, 15, 8), class_=colour(place)),
        class_="swatch",
        viewBox="0 0 30 16",
        aria_hidden="true",
    )
