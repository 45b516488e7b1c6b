"""Draw measures over training steps: few conditions in one panel, many in a cell each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rltune.report.figures.notes import BAD_ENDS
from rltune.report.figures.records import Condition, Curves, Mean, Panel, Reference, Series
from rltune.report.figures.sheet import Sheet
from rltune.report.figures.style import DOTTED, QUIET, TEXT, WIDTH, Look, looks_of, name_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TOGETHER = 4
"""Conditions whose seeds one panel can hold; more get a cell each, with the control behind."""

_LEAST_SHARE = 0.35  # of the height that the values keep; a level farther off is named at the edge
_LEAST_SPAN = 0.1  # of the axis of a rate: noise is not blown up
_FEW_STEPS = 6
_LEVEL_DASH = (0, (6, 3))
_SMALL = TEXT - 0.5


def draw_curves(sheet: Sheet, data: Curves) -> None:
    """Draw learning curves or training dynamics."""
    has_seeds = any(one.seeds for panel in data.panels for one in panel.series)
    if has_seeds and len(data.head.conditions) > TOGETHER:
        _draw_apart(sheet, data)
    else:
        _draw_together(sheet, data)


def _draw_together(sheet: Sheet, data: Curves) -> None:
    """Draw one panel per measure, one line per condition."""
    from matplotlib.lines import Line2D

    looks = looks_of(data.head.conditions)
    handles: list[Artist] = [
        Line2D([], [], color=look.colour, linestyle=look.dash, marker=look.marker, markersize=4)
        for look in looks.values()
    ]
    names = [name_of(one) for one in data.head.conditions]
    sheet.legend(handles, names, title=data.head.axis)
    height = 2.1 if len(data.panels) == 1 else 1.35

    def panels(figure: "Figure") -> None:
        grid = figure.subplots(len(data.panels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, panel in zip(grid, data.panels, strict=True):
            for one in panel.series:
                look = looks[one.condition]
                _draw_series(sheet, axes, one, look, shift=_shift(one, data, look, looks))
                _draw_levels(axes, one, look)
            low, high = _limits(panel, panel.series)
            axes.set_ylim(low, high)
            _draw_references(axes, panel.references, low, high, is_named=True)
            axes.set_ylabel(sheet.wrap(panel.label, width=height - 0.2))
        _draw_steps(grid[-1], data)
        grid[-1].set_xlabel("training step")

    sheet.finish(body=height * len(data.panels) + 0.3, panels=panels)


def _draw_apart(sheet: Sheet, data: Curves) -> None:
    """Draw a cell for each condition (but the control) and measure, the control in grey behind."""
    looks = looks_of(data.head.conditions)
    shown = [one for one in data.head.conditions if not one.is_control]
    many = len(data.panels) > 1
    columns = len(data.panels) if many else 2
    rows = len(shown) if many else -(-len(shown) // columns)
    control = next((one for one in data.head.conditions if one.is_control), None)
    if control is not None:
        _legend_of_control(sheet, data, control)

    def panels(figure: "Figure") -> None:
        grid = figure.subplots(
            rows, columns, sharex=True, sharey="col" if many else True, squeeze=False
        )
        for index, condition in enumerate(shown):
            for column, panel in enumerate(data.panels):
                place = (index, column) if many else divmod(index, columns)
                name = name_of(condition) if column == 0 else ""
                _draw_cell(sheet, grid[place], panel, condition, control, looks)
                width = (WIDTH - 0.5) / (1 if many else columns)
                grid[place].set_title(sheet.wrap(name, width=width), loc="left", pad=2.0)
        _label_cells(sheet, figure, grid, data)

    cell = 0.8 if many else 1.0
    sheet.finish(body=rows * cell + 0.35, panels=panels)


def _legend_of_control(sheet: Sheet, data: Curves, control: Condition) -> None:
    from matplotlib.lines import Line2D

    handles: list[Artist] = [Line2D([], [], color="0.55", linestyle="-", linewidth=1.3)]
    names = [f"in every panel: {name_of(control)}"]
    levels = [one.text for panel in data.panels for one in panel.references]
    if levels:
        handles.append(Line2D([], [], color="0.5", linewidth=0.6, linestyle=_LEVEL_DASH))
        names.append(", ".join(dict.fromkeys(levels)))
    sheet.legend(handles, names, title=data.head.axis)


def _draw_cell(
    sheet: Sheet,
    axes: "Axes",
    panel: Panel,
    condition: Condition,
    control: Condition | None,
    looks: dict[str, Look],
) -> None:
    for one in panel.series:
        if control is not None and one.condition == control.label:
            steps = [mean.step for mean in one.means]
            values = [mean.value for mean in one.means]
            axes.plot(steps, values, color="0.55", linestyle="-", linewidth=1.3, zorder=1)
        if one.condition == condition.label:
            _draw_series(sheet, axes, one, looks[one.condition])
            _draw_levels(axes, one, looks[one.condition])
    low, high = _limits(panel, panel.series)
    axes.set_ylim(low, high)
    _draw_references(axes, panel.references, low, high, is_named=False)


def _label_cells(sheet: Sheet, figure: "Figure", grid: Any, data: Curves) -> None:
    count = sum(not one.is_control for one in data.head.conditions)
    for axes in grid.flat:
        axes.tick_params(labelsize=_SMALL)
        _draw_steps(axes, data, most=3)
    if len(data.panels) == 1:
        for axes in grid.flat[count:]:
            axes.set_visible(False)
        for axes in grid.flat[max(0, count - grid.shape[1]) : count]:
            axes.tick_params(labelbottom=True)
        for axes in grid[:, 0]:
            axes.set_ylabel(sheet.wrap(data.panels[0].label, width=0.9))
    else:
        for axes, panel in zip(grid[0], data.panels, strict=True):
            title = sheet.wrap(panel.label, width=0.75)
            above = axes.get_title(loc="left")
            axes.set_title(f"{title}\n{above}" if above else f"{title}\n ", loc="left", pad=2.0)
    for axes in (
        grid.flat[max(0, count - grid.shape[1]) : count] if len(data.panels) == 1 else grid[-1]
    ):
        axes.set_xlabel("training step")


def _shift(one: Series, data: Curves, look: Look, looks: dict[str, Look]) -> float:
    """Return how far a condition stands beside its steps, where bars would hide each other."""
    means = [m for panel in data.panels for s in panel.series for m in s.means]
    if len(one.means) > _FEW_STEPS or all(m.low is None for m in means):
        return 0.0
    span = max(m.step for m in means) or 4
    place = list(looks.values()).index(look) - (len(looks) - 1) / 2
    return 0.018 * span * place


def _draw_series(
    sheet: Sheet, axes: "Axes", one: Series, look: Look, *, shift: float = 0.0
) -> None:
    for seed in one.seeds if len(one.seeds) > 1 else ():
        (line,) = axes.plot(
            [step + shift for step in seed.steps],
            seed.values,
            color=look.colour,
            linewidth=0.5,
            alpha=0.6,
            zorder=2,
            marker=".",
            markersize=3,
            markevery=[len(seed.steps) - 1],
        )
        sheet.mark(line, one.condition, seed.trial_id)
    for seed in one.seeds:
        if seed.status in BAD_ENDS:
            end = ([seed.steps[-1] + shift], seed.values[-1:])
            (cross,) = axes.plot(
                *end, color=look.colour, marker="x", markersize=8, markeredgewidth=1.5, zorder=5
            )
            sheet.mark(cross, one.condition)
    whole = [mean for mean in one.means if not mean.is_partial]
    parts = [mean for mean in one.means if mean.is_partial]
    joined = [*whole[-1:], *parts] if parts else []
    lines = [
        *_plot(axes, whole, look.colour, look.dash, look.marker, look.colour, shift),
        *_plot(axes, joined, look.colour, DOTTED, None, look.colour, shift),
        *_plot(axes, parts, look.colour, "", look.marker, "white", shift),
        *_draw_intervals(axes, whole, look, shift),
    ]
    for line in lines:
        sheet.mark(line, one.condition, one.seeds[0].trial_id if len(one.seeds) == 1 else "")


def _plot(
    axes: "Axes",
    means: Sequence[Mean],
    colour: str,
    dash: Any,
    marker: str | None,
    face: str,
    shift: float,
) -> Any:
    return axes.plot(
        [mean.step + shift for mean in means], [mean.value for mean in means], color=colour,
        linestyle=dash, marker=marker, markersize=3.5, markerfacecolor=face, zorder=3,
        markevery=max(1, len(means) // _FEW_STEPS),
    )  # fmt: skip


def _draw_intervals(
    axes: "Axes", means: Sequence[Mean], look: Look, shift: float
) -> Sequence["Artist"]:
    """Draw bars at few gates, where bands would hide each other; bands at many."""
    known = [(m.step + shift, m.value, m.low, m.high) for m in means if m.low is not None]
    if not known:
        return ()
    steps, values, lows, highs = zip(*known, strict=True)
    if len(known) > _FEW_STEPS:
        band = axes.fill_between(steps, lows, highs, color=look.colour, alpha=0.14, linewidth=0)
        return (band,)
    under = [value - low for value, low in zip(values, lows, strict=True)]
    over = [high - value for value, high in zip(values, highs, strict=True)]
    bars = axes.errorbar(
        steps, values, yerr=[under, over], color=look.colour, linestyle="", capsize=2.0,
        elinewidth=0.9, capthick=0.9,
    )  # fmt: skip
    return [part for part in bars.get_children() if part is not bars[0]]  # its line is empty


def _limits(panel: Panel, series: Sequence[Series]) -> tuple[float, float]:
    """Return the ends of the y axis: of the values, and of levels that do not squeeze them."""
    values = [v for one in series for seed in one.seeds for v in seed.values]
    values += [v for one in series for m in one.means for v in (m.low, m.high) if v is not None]
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    least = _LEAST_SPAN if panel.is_rate else 1e-9 * max(1.0, abs(high))
    grow = max(0.0, least - (high - low)) / 2
    low, high = low - grow, high + grow
    span = high - low
    levels = (*panel.references, *(level for one in series for level in one.levels))
    for one in sorted(levels, key=lambda r: max(low - r.value, r.value - high)):
        wide = (min(low, one.value), max(high, one.value))
        if span / (wide[1] - wide[0]) >= _LEAST_SHARE:
            low, high = wide
    pad = 0.07 * (high - low)
    return low - pad, high + pad


def _draw_levels(axes: "Axes", one: Series, look: Look) -> None:
    """Draw the levels that are the condition's own, in its colour."""
    for level in one.levels:
        axes.axhline(level.value, color=look.colour, linewidth=0.8, linestyle=_LEVEL_DASH, zorder=0)


def _draw_references(
    axes: "Axes", references: Sequence[Reference], low: float, high: float, *, is_named: bool
) -> None:
    """Draw the levels, and their names in the right margin: one beyond the axis has an arrow."""
    shown = []
    for one in sorted(references, key=lambda one: one.value):
        if one.interval is not None:
            axes.axhspan(*one.interval, color="0.5", alpha=0.12, linewidth=0, zorder=0)
        if low <= one.value <= high:
            axes.axhline(one.value, color="0.5", linewidth=0.6, linestyle=_LEVEL_DASH, zorder=0)
        arrow = " ↑" if one.value > high else " ↓" if one.value < low else ""
        name = one.name.replace(" ", "\n") + (f"\n{one.value:.3g}{arrow}" if arrow else "")
        shown.append((name, (min(max(one.value, low), high) - low) / (high - low)))
    if not is_named:
        return
    line = _SMALL * 1.15 / 72 / axes.get_window_extent().height * axes.figure.dpi
    for (name, _), y in zip(shown, _apart(shown, line), strict=True):
        axes.text(
            1.015, y, name, transform=axes.transAxes, color=QUIET, fontsize=_SMALL,
            ha="left", va="center", linespacing=1.0,
        )  # fmt: skip


def _apart(names: Sequence[tuple[str, float]], line: float) -> list[float]:
    """Return where names stand beside the axis, from below, so that none covers another."""
    places: list[float] = []
    least = -1.0
    for name, y in names:
        half = (name.count("\n") + 1) * line / 2
        y = line / 2 - half if name.endswith("↓") else min(y, 1.0 - half)
        places.append(max(y, least + half))
        least = places[-1] + half
    return places


def _draw_steps(axes: "Axes", data: Curves, *, most: int = _FEW_STEPS) -> None:
    """Put the ticks at the gates while they are few, else at whole steps."""
    from matplotlib.ticker import MaxNLocator

    steps = {m.step for panel in data.panels for one in panel.series for m in one.means}
    if len(steps) <= most:
        axes.set_xticks(sorted(steps))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=most, integer=True))
    if len(steps) == 1:
        axes.set_xlim(min(steps) - 1, min(steps) + 1)
