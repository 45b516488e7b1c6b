"""Draw the heat map: one row per condition, one column per gate."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rltune.report.figures.records import Cell, HeatMap
from rltune.report.figures.sheet import Sheet
from rltune.report.figures.style import TEXT, name_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW = 0.24  # inches
_MOST_NUMBERS = 6  # columns in which a value fits
_MOST_TICKS = 6
_COLOURS = "cividis"  # even in grey, and for any colour vision
_LEAST = 0.02  # of the colours' range: noise is not blown up


def draw_heatmap(sheet: Sheet, data: HeatMap) -> None:
    """Draw the metric by condition and step."""
    conditions = data.head.conditions
    names = [sheet.wrap(name_of(one), width=1.1) for one in conditions]
    lines = max(name.count("\n") + 1 for name in names)
    row = max(_ROW, lines * TEXT * 1.2 / 72 + 0.06)

    def panels(figure: "Figure") -> None:
        axes = figure.subplots()
        _draw_cells(figure, axes, data)
        axes.set_yticks([i + 0.5 for i in range(len(conditions))], names)
        axes.invert_yaxis()
        every = -(-len(data.steps) // _MOST_TICKS)
        shown = [i for i in range(len(data.steps)) if i % every == 0]
        axes.set_xticks([i + 0.5 for i in shown], [f"{data.steps[i]:,}" for i in shown])
        axes.tick_params(length=0)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.set_xlabel("training step")
        axes.set_ylabel(sheet.wrap(data.head.axis, width=max(0.8, row * len(conditions))))

    sheet.finish(body=row * len(conditions) + 0.45 + 0.45, panels=panels)


def _draw_cells(figure: "Figure", axes: "Axes", data: HeatMap) -> None:
    import matplotlib as mpl
    import numpy as np

    shape = (len(data.head.conditions), len(data.steps))
    values = np.array([np.nan if c.value is None else c.value for c in data.cells]).reshape(shape)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    grow = max(0.0, (_LEAST if data.is_rate else 1e-9) - (high - low)) / 2
    colours = mpl.colormaps[_COLOURS].resampled(64)
    mesh = axes.pcolormesh(
        np.ma.masked_invalid(values), cmap=colours, vmin=low - grow, vmax=high + grow,
        edgecolors="white", linewidth=0.8,
    )  # fmt: skip
    shades: Any = colours(np.ma.filled(mesh.norm(np.ma.masked_invalid(values)), 0.0))
    for index, cell in enumerate(data.cells):
        row, column = divmod(index, len(data.steps))
        _draw_cell(axes, cell, row, column, _ink(shades[row, column]), data)
    bar = figure.colorbar(mesh, ax=axes, orientation="horizontal", aspect=30, pad=0.03)
    bar.set_label(data.label)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2)


def _ink(rgba: Sequence[float]) -> str:
    """Return black or white, whichever has more contrast on a colour (WCAG's luminance)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgba[:3]]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "black" if luminance > 0.179 else "white"


def _draw_cell(axes: "Axes", cell: Cell, row: int, column: int, ink: str, data: HeatMap) -> None:
    from matplotlib.patches import Rectangle

    if cell.value is None:
        axes.text(column + 0.5, row + 0.5, "–", ha="center", va="center", color="0.4")
        return
    if cell.is_partial:
        axes.add_patch(
            Rectangle((column, row), 1, 1, fill=False, hatch="////", edgecolor=ink, linewidth=0)
        )
    if len(data.steps) <= _MOST_NUMBERS:
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85}
        axes.text(
            column + 0.5, row + 0.5, f"{cell.value:.3f}" if data.is_rate else f"{cell.value:.3g}",
            ha="center", va="center",
            color="black" if cell.is_partial else ink, bbox=box if cell.is_partial else None,
        )  # fmt: skip
