"""Draw the comparison: one row per condition, its verdict in words above its points."""

from typing import TYPE_CHECKING

from rltune.analysis.verdict_words import is_claim
from rltune.report.figures.records import Comparison, Comparisons
from rltune.report.figures.sheet import Sheet
from rltune.report.figures.style import TEXT, WIDTH, Look, looks_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINE = TEXT * 1.25 / 72  # inches of one line of text
_STRIP = 0.22  # inches of the points of one condition
_GAP = 0.08
_LEAST = 0.02  # half the axis at least, for rates that do not differ at all


def draw_comparison(sheet: Sheet, data: Comparisons) -> None:
    """Draw the paired differences of every condition to the control."""
    looks = looks_of(data.head.conditions)
    heads = [
        (sheet.wrap(row.condition, width=WIDTH - 0.25, bold=True),
         sheet.wrap(row.sentence, width=WIDTH - 0.25))
        for row in data.rows
    ]  # fmt: skip
    heights = [
        (name.count("\n") + sentence.count("\n") + 2) * _LINE + _STRIP + _GAP
        for name, sentence in heads
    ]
    total = sum(heights)

    def panels(figure: "Figure") -> None:
        axes = figure.subplots()
        axes.set_ylim(total, 0.0)  # in inches from the top, so that texts and strips fit
        top = 0.0
        for row, (name, sentence), height in zip(data.rows, heads, heights, strict=True):
            _write(axes, top + 0.02, name, sentence)
            _draw_row(sheet, axes, row, looks[row.condition], top + height - _GAP)
            top += height
        _draw_axis(sheet, axes, data)

    sheet.finish(body=total + 0.5 + _LINE * 2, panels=panels)


def _write(axes: "Axes", y: float, name: str, sentence: str) -> None:
    place = axes.get_yaxis_transform()
    axes.text(0.0, y, name, transform=place, va="top", weight="bold", linespacing=1.1)
    y += (name.count("\n") + 1) * _LINE
    axes.text(0.0, y, sentence, transform=place, va="top", linespacing=1.1)


def _draw_row(sheet: Sheet, axes: "Axes", row: Comparison, look: Look, bottom: float) -> None:
    """Draw the seeds above, the estimate with its interval below, zero behind both."""
    axes.plot([0, 0], [bottom - _STRIP, bottom], color="0.5", linewidth=0.7, zorder=0)
    upper, lower = bottom - 0.72 * _STRIP, bottom - 0.28 * _STRIP
    for pair in row.pairs:
        (point,) = axes.plot(
            [pair.difference], [upper], marker="o", markersize=3.5, color=look.colour,
            markerfacecolor="none", markeredgewidth=0.8,
        )  # fmt: skip
        words = f"{pair.trial_id} minus {pair.control_trial_id}"
        sheet.mark(point, row.condition, pair.trial_id, words)
    if row.delta is None or len(row.pairs) < 2:
        return
    if row.low is not None and row.high is not None:
        (bar,) = axes.plot(
            [row.low, row.high], [lower, lower], color=look.colour, linewidth=1.4,
            marker="|", markersize=5,
        )  # fmt: skip
        sheet.mark(bar, row.condition)
    (diamond,) = axes.plot(
        [row.delta], [lower], marker="D", markersize=4.5, color=look.colour,
        markerfacecolor=look.colour if is_claim(row.verdict) else "white",
    )  # fmt: skip
    sheet.mark(diamond, row.condition)


def _draw_axis(sheet: Sheet, axes: "Axes", data: Comparisons) -> None:
    from matplotlib.ticker import MaxNLocator

    drawn = [pair.difference for row in data.rows for pair in row.pairs]
    drawn += [v for row in data.rows for v in (row.low, row.high, row.delta) if v is not None]
    low, high = min([*drawn, 0.0]), max([*drawn, 0.0])
    pad = max(0.06 * (high - low), _LEAST / 2 if high - low < _LEAST else 0.0)
    axes.set_xlim(low - pad, high + pad)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    better = ", less is better" if data.is_less_better else ""
    name = f"difference in {data.label} to {data.control}, last gate{better}"
    axes.set_xlabel(sheet.wrap(name, width=WIDTH - 0.3))  # fonts differ from viewer to viewer
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
