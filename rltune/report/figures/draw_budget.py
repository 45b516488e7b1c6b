"""Draw the budget: four small panels, one row per condition, one point per trial."""

from typing import TYPE_CHECKING

from rltune.report.figures.data_budget import spread_text
from rltune.report.figures.records import Budget, Quantity
from rltune.report.figures.sheet import Sheet
from rltune.report.figures.style import GRID, TEXT, WIDTH, looks_of, name_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW = 0.17  # inches
_UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))
_LETTERS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def draw_budget(sheet: Sheet, data: Budget) -> None:
    """Draw what every trial consumed."""
    conditions = data.head.conditions
    names = [sheet.wrap(name_of(one), width=0.85) for one in conditions]
    lines = max(name.count("\n") + 1 for name in names)
    row = max(_ROW, lines * TEXT * 1.2 / 72 + 0.04)
    rows = -(-len(data.quantities) // 2)
    widest = max(sheet.width(text) for name in names for text in name.split("\n"))
    titles = _titles(sheet, data, (WIDTH - widest - 0.35) / 2 - 0.1)

    def panels(figure: "Figure") -> None:
        grid = figure.subplots(rows, 2, sharey=True, squeeze=False)
        for axes, one, title in zip(grid.flat, data.quantities, titles, strict=False):
            _draw_quantity(sheet, axes, one, data, title)
        for axes in grid.flat[len(data.quantities) :]:
            axes.set_visible(False)
        grid[0, 0].set_yticks(range(len(conditions)), names)
        grid[0, 0].set_ylim(len(conditions) - 0.4, -0.6)
        for axes in grid[:, 0]:
            axes.set_ylabel(sheet.wrap(data.head.axis, width=row * len(conditions) + 0.4))

    sheet.finish(
        body=rows * (row * len(conditions) + 0.55 + 0.12 * ("\n" in titles[0])), panels=panels
    )


def _draw_quantity(sheet: Sheet, axes: "Axes", one: Quantity, data: Budget, title: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    looks = looks_of(data.head.conditions)
    places = {condition.label: i for i, condition in enumerate(data.head.conditions)}
    most = max(use.value for use in one.uses)
    scale, _ = _unit(one)
    for use in one.uses:
        colour = looks[use.condition].colour
        (point,) = axes.plot(
            [use.value / scale], [places[use.condition]], marker="o", markersize=3.5,
            color=colour, markerfacecolor=colour if use.is_finished else "white", alpha=0.7,
        )  # fmt: skip
        sheet.mark(point, use.condition, use.trial_id)
    for label, mean in one.means:
        y, x = places[label], mean / scale
        (bar,) = axes.plot([x, x], [y - 0.32, y + 0.32], color=looks[label].colour, linewidth=1.4)
        sheet.mark(bar, label)
    axes.set_xlim(0.0, (most or 1.0) / scale * 1.08)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=3))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.grid(axis="x", color=GRID, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", pad=3.0)


def _unit(one: Quantity) -> tuple[float, str]:
    """Return the size and the name of the unit that a quantity is drawn in."""
    if one.unit != "s":
        return 1.0, one.unit
    most = max(use.value for use in one.uses)
    return next(((size, name) for size, name in _UNITS if most >= 2 * size), _UNITS[-1])


def _titles(sheet: Sheet, data: Budget, room: float) -> list[str]:
    """Return the title of each panel: all on one line, or all on two."""
    names = [
        ", ".join(part for part in (one.label, _unit(one)[1]) if part) for one in data.quantities
    ]
    spreads = [f"({text})" if (text := spread_text(one.spread)) else "" for one in data.quantities]
    joined = [f"{name} {text}".strip() for name, text in zip(names, spreads, strict=True)]
    if all(sheet.width(text) <= room for text in joined):
        return joined
    return [f"{name}\n{text}".strip() for name, text in zip(names, spreads, strict=True)]


def short(value: float) -> str:
    """Return a number with at most three digits and a letter: `12k`."""
    for size, letter in _LETTERS:
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
