"""Draw the generations of a model: what each reaches, and what each is beside the one before."""

from typing import TYPE_CHECKING

from rltune.analysis.generations import Beside, GenerationRow
from rltune.report.figures.records import GenerationChart
from rltune.report.figures.sheet import Sheet
from rltune.report.figures.style import COLOURS, GRID, INK, QUIET, WIDTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HELDOUT = COLOURS[0]
_ASIDE = 0.08  # generations that two marks of one generation are apart
_LEGEND = "fresh tasks, seen by no generation", "held-out tasks, on which it was chosen"


def draw_generations(sheet: Sheet, data: GenerationChart) -> None:
    """Draw the metric of each generation above, the difference to the one before below."""
    from matplotlib.lines import Line2D

    has_fresh = any(row.fresh for row in data.rows)
    handles = [
        Line2D([], [], color=INK, marker="o", markersize=4, linewidth=1.2),
        Line2D([], [], color=_HELDOUT, marker="s", markersize=4, markerfacecolor="white"),
    ]
    first = 0 if has_fresh else 1
    sheet.legend(handles[first:], _LEGEND[first:], title="")

    def panels(figure: "Figure") -> None:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        _draw_fresh(sheet, upper, data)
        for row in data.rows:
            _draw_heldout(sheet, upper, row)
        upper.set_ylabel(sheet.wrap(data.label, width=1.2))
        for row in data.rows:
            _draw_difference(sheet, lower, row, row.heldout, -_ASIDE, is_fresh=False)
            _draw_difference(sheet, lower, row, row.fresh_beside, _ASIDE, is_fresh=True)
        lower.axhline(0.0, color=QUIET, linewidth=0.7, zorder=0)
        lower.set_ylabel(sheet.wrap("minus the generation before", width=1.0))
        lower.set_xlabel(sheet.wrap("generation (0: what the first began with)", width=WIDTH - 0.6))
        lower.set_xticks([row.number for row in data.rows])
        for axes in (upper, lower):
            axes.grid(axis="y", color=GRID, linewidth=0.5)
            axes.set_axisbelow(True)
            axes.margins(x=0.08)

    sheet.finish(body=2.9, panels=panels)


def _draw_heldout(sheet: Sheet, axes: "Axes", row: GenerationRow) -> None:
    """Draw a generation and the one before, on the held-out tasks of this one."""
    one = row.heldout
    if one is None:
        return
    (line,) = axes.plot(
        [row.number - 1 + _ASIDE, row.number - _ASIDE], [one.before, one.after],
        color=_HELDOUT, marker="s", markersize=3.5, markerfacecolor="white", linewidth=1.0,
        linestyle="-" if row.departs == "model" else ":",
    )  # fmt: skip
    sheet.mark(line, row.name, words=f"{row.name}: {one.before:.3g} to {one.after:.3g}, held out")


def _draw_fresh(sheet: Sheet, axes: "Axes", data: GenerationChart) -> None:
    """Draw every generation on the fresh tasks, with its interval."""
    known = [(row, row.fresh) for row in data.rows if row.fresh is not None]
    axes.plot(
        [row.number for row, _ in known], [one.value for _, one in known], color=INK, linewidth=1.2
    )
    for row, one in known:
        if one.interval is not None:
            axes.plot([row.number] * 2, list(one.interval), color=INK, linewidth=0.9, marker="_",
                      markersize=4)  # fmt: skip
        (point,) = axes.plot([row.number], [one.value], color=INK, marker="o", markersize=4)
        sheet.mark(point, row.name, words=f"{row.name}: {one.value:.3g} on {one.tasks} fresh tasks")


def _draw_difference(
    sheet: Sheet,
    axes: "Axes",
    row: GenerationRow,
    one: Beside | None,
    aside: float,
    *,
    is_fresh: bool,
) -> None:
    """Draw the difference to the generation before with its interval."""
    if one is None:
        return
    colour, x = INK if is_fresh else _HELDOUT, row.number + aside
    if one.interval is not None:
        axes.plot([x, x], list(one.interval), color=colour, linewidth=0.9, marker="_", markersize=4)
    (point,) = axes.plot(
        [x], [one.difference], color=colour, marker="o" if is_fresh else "s", markersize=4,
        markerfacecolor=colour if is_fresh else "white",
    )  # fmt: skip
    sheet.mark(point, row.name, words=f"{row.name}: {one.difference:+.3g} beside the one before")
