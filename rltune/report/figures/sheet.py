"""The page that every figure is drawn on: title, notes, legend, panels, caption, from the top.

Heights are measured, so that long texts make a figure higher and never cover its panels.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rltune.analysis.tables import OK
from rltune.report.figures.records import Head
from rltune.report.figures.style import ALARM, DPI, QUIET, TEXT, TITLE, WIDTH

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

_PAD = 0.04  # inches, around the page and between its parts
_JOINTS = "_=/,;:"  # a long word is broken after one of these
_LINE = 1.25  # height of a line of text over its size


class Mark(NamedTuple):
    """What a point or a line shows: label of its condition, its trial, and words for readers."""

    condition: str
    trial_id: str = ""
    words: str = ""


class Sheet:
    """One figure being drawn.

    Attributes:
        figure: Of matplotlib.
        marks: Id in an SVG -> what it shows.

    """

    def __init__(self, head: Head, *, is_bare: bool = False, has_legend: bool = True) -> None:
        """Start a figure; a bare one has no texts around its panels: the page has them."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self._head = head
        self._is_bare = is_bare
        self._has_legend = has_legend
        self.figure: Figure = Figure(figsize=(WIDTH, WIDTH), dpi=DPI)
        FigureCanvasAgg(self.figure)
        self.marks: dict[str, Mark] = {}
        self._legend: Any = None

    def wrap(self, text: str, *, width: float, size: float = TEXT, bold: bool = False) -> str:
        """Return a text broken into lines of at most `width` inches, words whole where they fit."""
        lines: list[str] = []
        for word in text.split():
            joined = f"{lines[-1]} {word}" if lines else word
            if lines and self.width(joined, size=size, bold=bold) <= width:
                lines[-1] = joined
                continue
            lines += self._broken(word, width, size, bold)
        return "\n".join(lines)

    def _broken(self, word: str, width: float, size: float, bold: bool) -> list[str]:
        """Return the parts of a word that fit: after a joint such as `_` where there is one."""
        parts = []
        while len(word) > 1 and self.width(word, size=size, bold=bold) > width:
            cut = len(word) - 1
            while cut > 1 and self.width(word[:cut], size=size, bold=bold) > width:
                cut -= 1
            joint = max(word.rfind(one, 0, cut) for one in _JOINTS) + 1
            cut = joint if joint > 1 else cut
            parts.append(word[:cut])
            word = word[cut:]
        return [*parts, word]

    def width(self, text: str, *, size: float = TEXT, bold: bool = False) -> float:
        """Return the width of one line of text, in inches."""
        from matplotlib.font_manager import FontProperties

        weight = "bold" if bold else "normal"
        font = FontProperties(family="DejaVu Sans", size=size, weight=weight)
        canvas: Any = self.figure.canvas
        wide, _, _ = canvas.get_renderer().get_text_width_height_descent(text, font, False)
        return float(wide) / DPI

    def mark(self, artist: "Artist", condition: str, trial_id: str = "", words: str = "") -> None:
        """Say what an artist shows; an SVG has the words under the pointer."""
        name = f"mark-{len(self.marks)}"
        artist.set_gid(name)
        self.marks[name] = Mark(condition, trial_id, words or trial_id)

    def legend(self, handles: Sequence["Artist"], names: Sequence[str], *, title: str) -> None:
        """Put a legend between the notes and the panels, in as many columns as fit."""
        if not self._has_legend:
            return
        room = WIDTH - 2 * _PAD
        names = [self.wrap(name, width=room - 0.4) for name in names]
        for columns in range(min(len(names), 4), 0, -1):
            if self._legend is not None:
                self._legend.remove()
            self._legend = self.figure.legend(
                handles, names, loc="upper left", ncols=columns, frameon=False, borderaxespad=0.0,
                borderpad=0.1, handlelength=2.6, handletextpad=0.5, columnspacing=1.0,
                labelspacing=0.25, title=self.wrap(title, width=room), title_fontsize=TEXT,
                alignment="left",
            )  # fmt: skip
            if self._extent(self._legend)[0] <= room:
                return

    def _extent(self, artist: "Artist") -> tuple[float, float]:
        box = artist.get_window_extent()
        return box.width / DPI, box.height / DPI

    def finish(self, *, body: float, panels: Callable[["Figure"], None]) -> None:
        """Set the height of the page, write its texts and lay the panels out.

        Args:
            body: Height of the panels with their labels, in inches.
            panels: Draws them; it is called once the page has its size.

        """
        head, room = self._head, WIDTH - 2 * _PAD
        above = [(head.title, TITLE, "black", "bold")]
        above += [(note, TEXT, ALARM, "normal") for note in head.notes]
        below = [(head.caption, TEXT, QUIET, "normal"), (f"Run {head.run}", TEXT, QUIET, "normal")]
        if self._is_bare:
            above, below = [], []
        top = [
            (self.wrap(t, width=room, size=s, bold=w == "bold"), s, c, w) for t, s, c, w in above
        ]
        end = [(self.wrap(t, width=room, size=s), s, c, w) for t, s, c, w in below]
        legend = self._extent(self._legend)[1] + _PAD if self._legend is not None else 0.0
        over = _PAD + sum(map(_height, top)) + legend
        under = _PAD + sum(map(_height, end))
        height = over + body + under
        self.figure.set_size_inches(WIDTH, height)
        y = self._write(top, _PAD, height)
        if self._legend is not None:
            self._legend.set_bbox_to_anchor((_PAD / WIDTH, 1.0 - y / height))
        self._write(end, over + body, height)
        self._lay_out((0.0, under / height, 1.0, body / height))
        panels(self.figure)
        self._mark((under + body / 2) / height)

    def _write(
        self, lines: Sequence[tuple[str, float, str, str]], y: float, height: float
    ) -> float:
        """Write texts from `y` inches below the top; return where they end."""
        for line in lines:
            text, size, colour, weight = line
            self.figure.text(
                _PAD / WIDTH, 1.0 - y / height, text, size=size, color=colour, weight=weight,
                va="top", ha="left", linespacing=1.1,
            )  # fmt: skip
            y += _height(line)
        return y

    def _lay_out(self, rect: tuple[float, float, float, float]) -> None:
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        engine = ConstrainedLayoutEngine(
            rect=rect, w_pad=_PAD, h_pad=_PAD, wspace=0.02, hspace=0.02
        )
        self.figure.set_layout_engine(engine)

    def _mark(self, y: float) -> None:
        """Write what stands against the sweep across the panels: it survives a cropped title."""
        if self._head.mark == OK:
            return
        self.figure.text(
            0.55, y, self._head.mark.upper().replace("; ", "\n"), size=20, color=ALARM, alpha=0.16,
            weight="bold", rotation=20, ha="center", va="center", zorder=10,
        )  # fmt: skip


def _height(line: tuple[str, float, str, str]) -> float:
    text, size, _, _ = line
    return (text.count("\n") + 1) * size * _LINE / 72 + 0.02
