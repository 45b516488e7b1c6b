"""A figure's SVG as a part of the page: nothing in it clashes with the rest or leads outside."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from rltune.report.figures.draw import draw_bare, has_matplotlib
from rltune.report.figures.records import Figure, HeatMap
from rltune.report.figures.sheet import Mark
from rltune.report.figures.style import ALARM, COLOURS, GRID, INK, QUIET
from rltune.report.html.table import Table
from rltune.report.markdown import shown

_LONG = re.compile(r"-?\d+\.\d{3,}")
_GAP = re.compile(r"\s*([A-Za-z]|\s)\s*")
_USED = re.compile(r'#([\w-]+)["\')]')  # url(#id), href="#id"
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_THEME = {
    INK: "currentColor",
    "#ffffff": "var(--paper)",
    QUIET: "var(--soft)",
    "#808080": "var(--soft)",
    "#8c8c8c": "var(--soft)",
    GRID: "var(--line)",
    ALARM: "var(--bad)",
    **{colour: f"var(--c{i})" for i, colour in enumerate(COLOURS, start=1)},
}
"""Colour of a figure -> what report.css makes of it in light and dark."""

_GEOMETRY = ("d", "x", "y", "transform", "width", "height")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure on the page: its drawing (None without matplotlib), caption and numbers."""

    title: str
    caption: str
    svg: Markup | None
    numbers: tuple[Table, ...] = ()


class Link(NamedTuple):
    """Where a mark leads: id of an element of the page, and what the mark shows."""

    place: str
    words: str


def svg_of(
    data: Figure, name: str, *, links: Mapping[str, Link] | None = None, has_legend: bool = True
) -> Markup | None:
    """Return a figure's panels as inline SVG; None without matplotlib.

    Args:
        data: What it shows.
        name: Begins every id in it, so that figures of one page do not clash.
        links: Trial id -> where its marks lead. Without links a figure is one picture for a screen
            reader; with them it is a group, for an `img` has no parts that take the focus.
        has_legend: Whether it has its own legend.

    """
    if not has_matplotlib():
        return None
    svg, marks = draw_bare(data, has_legend=has_legend)
    is_own = isinstance(data, HeatMap)  # its colours mean values
    root = _cleaned(svg, name, marks, is_themed=not is_own)
    labels = [one.label for one in data.head.conditions]
    for one in [one for one in root.iter("g") if "id" in one.attrib]:
        _mark(one, marks[one.attrib.pop("id").removeprefix(f"{name}-")], labels, links or {})
    for text in root.iter("text") if links else ():
        text.set("aria-hidden", "true")  # the label has it all, in order
    root.attrib = {
        "class": "chart own" if is_own else "chart",
        "fill": "currentColor",
        "viewBox": root.attrib["viewBox"],
        "role": "group" if links else "img",
        "aria-label": shown(f"{data.head.figure.replace('_', ' ').capitalize()}. {data.head.alt}"),
    }
    return Markup(ET.tostring(root, encoding="unicode"))  # the tree escapes its texts


def _cleaned(svg: str, name: str, marks: Iterable[str], *, is_themed: bool) -> ET.Element:
    """Return an SVG without metadata, style sheet and ids that nothing refers to."""
    root = ET.fromstring(_NO_XML.sub(lambda char: shown(char[0]), svg))
    ids = {*_USED.findall(svg), *marks}
    for one in root.iter():
        _clean(one, name, ids)
        for key in {"fill", "stroke"} & one.attrib.keys() if is_themed else ():
            one.attrib[key] = themed(one.attrib[key])
    for part in [one for one in root if one.tag == "metadata" or one.find("style") is not None]:
        root.remove(part)
    return root


def themed(colour: str) -> str:
    """Return a colour of a figure as the page has it in light and dark."""
    return _THEME.get(colour.upper(), _THEME.get(colour, colour))


def _clean(one: ET.Element, name: str, ids: set[str]) -> None:
    """Turn styles into attributes (the page's policy forbids them), and make ids the page's."""
    one.tag = one.tag.partition("}")[2]
    one.text = shown(one.text) if one.text and one.text.strip() else None
    one.tail = None
    attributes = {key.rpartition("}")[2]: value for key, value in one.attrib.items()}
    for declaration in filter(None, attributes.pop("style", "").split(";")):
        key, _, value = declaration.partition(":")
        attributes[key.strip()] = value.strip()
    for key in _GEOMETRY:
        if key in attributes:
            attributes[key] = _LONG.sub(_short, _GAP.sub(r"\1", attributes[key].strip()))
    for key, value in attributes.items():
        if key == "href" or value.startswith("url("):
            attributes[key] = value.replace("#", f"#{name}-", 1)
    if "id" in attributes:
        known = attributes.pop("id")
        attributes |= {"id": f"{name}-{known}"} if known in ids else {}
    attributes.pop("font-family", None)  # that of the page
    one.attrib = attributes


def _short(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def _mark(one: ET.Element, mark: Mark, labels: Sequence[str], links: Mapping[str, Link]) -> None:
    """Say of which condition a mark is; make it a link, or show its words under the pointer."""
    one.set("data-c", str(labels.index(mark.condition)))
    link = links.get(mark.trial_id)
    words = link.words if link else mark.words
    if link:
        one.tag = "a"
        one.attrib |= {"href": f"#{link.place}", "aria-label": shown(words)}
        for path in one.findall("path"):  # a thin line is hard to hit
            wide = deepcopy(path)
            wide.attrib |= {"stroke-width": "6", "stroke-opacity": "0", "fill": "none"}
            one.append(wide)
    if words:
        title = ET.Element("title")
        title.text = shown(words)
        one.insert(0, title)
