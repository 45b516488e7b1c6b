"""Draw a figure from its data alone, to the bytes of a file."""

import io
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from xml.sax.saxutils import escape

from rltune.report.figures.draw_benchmarks import draw_benchmarks
from rltune.report.figures.draw_budget import draw_budget
from rltune.report.figures.draw_comparison import draw_comparison
from rltune.report.figures.draw_curves import draw_curves
from rltune.report.figures.draw_generations import draw_generations
from rltune.report.figures.draw_heatmap import draw_heatmap
from rltune.report.figures.records import (
    Benchmarks,
    Budget,
    Comparisons,
    Curves,
    Figure,
    GenerationChart,
    Head,
)
from rltune.report.figures.sheet import Mark, Sheet
from rltune.report.figures.style import DPI, KINDS, RC


def has_matplotlib() -> bool:
    """Tell whether figures can be drawn here."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def draw(data: Figure, *, kind: str) -> bytes:
    """Return a figure as `png`, `svg` or `pdf`; same data and matplotlib, same bytes.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.

    """
    return draw_kinds(data, (kind,))[kind]


def draw_kinds(data: Figure, kinds: Iterable[str] = KINDS) -> dict[str, bytes]:
    """Return a figure as a file of each kind, as `draw` gives them one by one."""
    with _drawn(data) as sheet:
        return {kind: _saved(sheet, data.head, kind) for kind in kinds}


def draw_bare(data: Figure, *, has_legend: bool = True) -> tuple[str, dict[str, Mark]]:
    """Return an SVG of the panels alone, on no ground, and what its marks show."""
    out = io.BytesIO()
    with _drawn(data, is_bare=True, has_legend=has_legend) as sheet:
        sheet.figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return out.getvalue().decode(), sheet.marks


@contextmanager
def _drawn(data: Figure, **how: bool) -> Iterator[Sheet]:
    """Give a laid-out figure, in the settings in which it is saved."""
    import matplotlib as mpl

    with mpl.rc_context({**mpl.rcParamsDefault, **RC}), warnings.catch_warnings():
        # A character that the font lacks is a box, in PNG and PDF alone.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        sheet = Sheet(data.head, **how)
        _draw(sheet, data)
        sheet.figure.draw_without_rendering()  # lays out, once for all kinds
        sheet.figure.set_layout_engine("none")
        yield sheet


def _saved(sheet: Sheet, head: Head, kind: str) -> bytes:
    out = io.BytesIO()
    sheet.figure.savefig(out, format=kind, dpi=DPI, metadata=_metadata(head, kind))
    if kind != "svg":
        return out.getvalue()
    return _accessible(out.getvalue().decode(), head, sheet.marks).encode()


def _draw(sheet: Sheet, data: Figure) -> None:
    if isinstance(data, Curves):
        draw_curves(sheet, data)
    elif isinstance(data, Comparisons):
        draw_comparison(sheet, data)
    elif isinstance(data, Budget):
        draw_budget(sheet, data)
    elif isinstance(data, Benchmarks):
        draw_benchmarks(sheet, data)
    elif isinstance(data, GenerationChart):
        draw_generations(sheet, data)
    else:
        draw_heatmap(sheet, data)


def described(head: Head) -> tuple[str, str]:
    """Return title and description of a file."""
    return _printable(f"{head.title}: {head.figure.replace('_', ' ')}"), _printable(head.alt)


def _metadata(head: Head, kind: str) -> dict[str, Any]:
    """Return title and description of the file, and no date."""
    title, alt = described(head)
    if kind == "svg":
        return {"Title": title, "Description": alt, "Creator": "rltune", "Date": None}
    if kind == "pdf":
        return {"Title": title, "Subject": alt, "Creator": "rltune", "CreationDate": None}
    return {"Title": title, "Description": alt, "Software": "rltune"}


def _printable(text: str) -> str:
    return " ".join(text.split()).encode("utf-8", "backslashreplace").decode("utf-8")


def _accessible(svg: str, head: Head, marks: dict[str, Mark]) -> str:
    """Return an SVG that a screen reader describes, and whose marks name their trials."""
    described = f'<desc id="desc">{escape(_printable(head.alt))}</desc>'
    svg = svg.replace("<title>", '<title id="title">', 1)
    svg = svg.replace("</title>", f"</title>\n {described}", 1)
    svg = svg.replace("<svg ", '<svg role="img" aria-labelledby="title desc" ', 1)

    def titled(group: re.Match[str]) -> str:
        words = escape(_printable(marks[group[1]].words))
        return f"{group[0]}\n<title>{words}</title>" if words else group[0]

    return re.sub(r'<g id="(mark-\d+)">', titled, svg)
