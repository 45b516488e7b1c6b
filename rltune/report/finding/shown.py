"""What a drawing shows, read from its SVG: its words, and where its marks stand in their panels.

Two versions of matplotlib lay a page out by fractions of a point otherwise and name its parts
otherwise, so their bytes differ. What a reader sees does not: the same words, and in each panel the
same marks in the same colours at the same places.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from rltune.report.figures.draw import described
from rltune.report.figures.records import Figure

TOLERANCE = 0.001
"""Of a panel's width or height: less than the eye sees. Matplotlib 3.8, 3.9 and 3.11 agree to 1e-7.
"""

_SVG = "{http://www.w3.org/2000/svg}"
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_TEXTS = frozenset(f"{_SVG}{name}" for name in ("title", "desc", "text"))


@dataclass(frozen=True, slots=True)
class Mark:
    """One shape of a panel: its colours, and its points as shares of the panel."""

    colours: tuple[str, str]  # of line and of area
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """What one drawing shows."""

    words: tuple[str, ...]  # of all texts in their order
    panels: tuple[tuple[Mark, ...], ...]
    around: tuple[tuple[str, str], ...]  # colours of the shapes outside of panels: the legend's


def read_shown(svg: bytes) -> Shown:
    """Return what an SVG of a figure shows.

    Raises:
        ElementTree.ParseError: It is not XML.
        ValueError: A panel has no frame.

    """
    root = ElementTree.fromstring(svg)
    words: list[str] = []
    panels: list[tuple[Mark, ...]] = []
    around: list[tuple[str, str]] = []
    _read(root, words, panels, around)
    return Shown(tuple(words), tuple(panels), tuple(around))


def _read(
    node: Element,
    words: list[str],
    panels: list[tuple[Mark, ...]],
    around: list[tuple[str, str]],
) -> None:
    for one in node:
        if one.tag in _TEXTS:
            words += "".join(one.itertext()).split()
        elif one.tag == f"{_SVG}g" and str(one.get("id", "")).startswith("axes_"):
            panels.append(_panel(one))
            words += _words(one)
        elif _is_shape(one):
            around.append(_colours(one))
        elif one.tag not in (f"{_SVG}defs", f"{_SVG}metadata"):
            _read(one, words, panels, around)


def _words(panel: Element) -> Iterator[str]:
    for one in panel.iter():
        if one.tag in _TEXTS:
            yield from "".join(one.itertext()).split()


def _panel(panel: Element) -> tuple[Mark, ...]:
    shapes = list(_drawn(panel))
    if not shapes:
        raise ValueError("a panel has no frame")
    frame = _points(shapes[0])
    (left, right), (top, bottom) = ((min(v), max(v)) for v in zip(*frame, strict=True))
    if right <= left or bottom <= top:
        raise ValueError("a panel's frame has no area")
    return tuple(
        Mark(
            _colours(one),
            tuple(
                ((x - left) / (right - left), (y - top) / (bottom - top)) for x, y in _points(one)
            ),
        )
        for one in shapes
    )


def _drawn(node: Element) -> Iterator[Element]:
    """Yield the shapes of a panel in their order, without its axes' ticks."""
    for one in node:
        if _is_shape(one):
            yield one
        elif one.tag == f"{_SVG}g" and not str(one.get("id", "")).startswith("matplotlib.axis"):
            yield from _drawn(one)


def _is_shape(node: Element) -> bool:
    return node.tag in (f"{_SVG}path", f"{_SVG}use")


def _colours(shape: Element) -> tuple[str, str]:
    style = {
        name.strip(): value.strip()
        for name, _, value in (part.partition(":") for part in shape.get("style", "").split(";"))
    }
    return style.get("stroke", "none"), style.get("fill", "none")


def _points(shape: Element) -> tuple[tuple[float, float], ...]:
    if shape.tag == f"{_SVG}use":
        return ((float(shape.get("x", "nan")), float(shape.get("y", "nan"))),)
    numbers = [float(text) for text in _NUMBER.findall(shape.get("d", ""))]
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def other_title(name: str, svg: bytes, data: Figure) -> Iterator[str]:
    """Yield that an SVG has not the title and the description of a figure's data."""
    expected = " ".join(described(data.head)).split()
    try:
        words = list(read_shown(svg).words[: len(expected)])
    except (ElementTree.ParseError, ValueError) as error:
        words = [f"({error})"]
    if words != expected:
        yield f"{name} does not show these tables: {_other_words(words, expected)}"


def other_drawing(name: str, there: bytes, again: bytes, *, is_exact: bool) -> Iterator[str]:
    """Yield what an SVG shows that the same figure, drawn again, does not.

    `is_exact`: the same matplotlib drew both, so they have the same bytes, too.
    """
    if there == again:
        return
    try:
        found = list(_differences(read_shown(there), read_shown(again)))
    except (ElementTree.ParseError, ValueError) as error:
        found = [f"it cannot be read: {error}"]
    if found or is_exact:
        yield f"{name} does not show these tables: {(found or ['its bytes differ'])[0]}"


def _differences(there: Shown, ours: Shown) -> Iterator[str]:
    """Yield the first difference of words, and of each panel: what is shown, what should be."""
    if there.words != ours.words:
        yield _other_words(there.words, ours.words)
    if len(there.panels) != len(ours.panels):
        yield f"{len(there.panels)} panels, not {len(ours.panels)}"
        return
    for number, (old, new) in enumerate(zip(there.panels, ours.panels, strict=True), start=1):
        yield from (f"panel {number}: {text}" for text in _other_marks(old, new))
    if there.around != ours.around:
        yield "other colours in the legend"


def _other_words(there: Sequence[str], ours: Sequence[str]) -> str:
    pairs = enumerate(zip(there, ours, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(there), len(ours)))
    old, new = (" ".join(words[max(0, at - 3) : at + 4]) for words in (there, ours))
    return f"it says {old!r}, not {new!r}"


def _other_marks(there: Sequence[Mark], ours: Sequence[Mark]) -> Iterator[str]:
    if len(there) != len(ours):
        yield f"{len(there)} shapes, not {len(ours)}"
        return
    for number, (old, new) in enumerate(zip(there, ours, strict=True), start=1):
        if old.colours != new.colours:
            yield f"shape {number} has the colours {old.colours}, not {new.colours}"
            return
        if len(old.points) != len(new.points):
            yield f"shape {number} has {len(old.points)} points, not {len(new.points)}"
            return
        for (x, y), (x2, y2) in zip(old.points, new.points, strict=True):
            if max(abs(x - x2), abs(y - y2)) > TOLERANCE:
                yield f"shape {number} is at ({x:.3f}, {y:.3f}), not ({x2:.3f}, {y2:.3f})"
                return
