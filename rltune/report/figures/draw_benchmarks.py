"""Draw the benchmarks: a panel for each measure, a row for each named set."""

from typing import TYPE_CHECKING

from rltune.report.figures.records import Benchmarks
from rltune.report.figures.sheet import Sheet
from rltune.report.figures.style import Look, looks_of, name_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STRIP = 0.11  # inches of one condition in the row of a set
_GAP = 0.1  # inches between sets


def draw_benchmarks(sheet: Sheet, data: Benchmarks) -> None:
    """Draw mean and interval of every condition on every set."""
    looks = looks_of(data.head.conditions)
    sets = tuple(dict.fromkeys(point.benchmark for point in data.points))
    row = _STRIP * len(looks) + _GAP

    def panels(figure: "Figure") -> None:
        grid = figure.subplots(1, len(data.measures), sharey=True, squeeze=False)
        for axes, measure, label in zip(grid[0], data.measures, data.labels, strict=True):
            _draw_panel(sheet, axes, data, measure, looks, sets)
            axes.set_xlabel(label)
        grid[0][0].set_yticks(
            [(i + 0.5) * row for i in range(len(sets))],
            [sheet.wrap(name, width=0.9) for name in sets],
        )
        grid[0][0].set_ylim(row * len(sets), 0.0)

    from matplotlib.lines import Line2D

    names = [name_of(one) for one in data.head.conditions]
    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, markersize=4, linewidth=1.2)
        for look in looks.values()
    ]
    sheet.legend(handles, names, title=data.head.axis)
    sheet.finish(body=row * len(sets) + 0.5, panels=panels)


def _draw_panel(
    sheet: Sheet,
    axes: "Axes",
    data: Benchmarks,
    measure: str,
    looks: dict[str, Look],
    sets: tuple[str, ...],
) -> None:
    place = {label: i for i, label in enumerate(looks)}
    row = _STRIP * len(looks) + _GAP
    for point in data.points:
        if point.measure != measure:
            continue
        look = looks[point.condition]
        y = sets.index(point.benchmark) * row + (place[point.condition] + 0.5) * _STRIP + _GAP / 2
        if point.low is not None and point.high is not None:
            axes.plot([point.low, point.high], [y, y], color=look.colour, linewidth=1.2)
        (mark,) = axes.plot(
            [point.value], [y], color=look.colour, marker=look.marker, markersize=3.5
        )
        words = f"{point.condition}, {point.benchmark}: {measure} {point.value:.3g}"
        sheet.mark(mark, point.condition, words=words)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", linewidth=0.4, color="#DDDDDD")
