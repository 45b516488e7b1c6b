"""All figures of an export: their data, in a fixed order."""

from collections.abc import Callable

from rltune.analysis.tables import BENCHMARKS
from rltune.gate import set_metric
from rltune.report.figures.data_benchmarks import benchmarks_data
from rltune.report.figures.data_budget import BUDGET, budget_data
from rltune.report.figures.data_comparison import COMPARISON, comparison_data
from rltune.report.figures.data_curves import CURVES, DYNAMICS, curves_data, dynamics_data
from rltune.report.figures.data_heatmap import HEATMAP, heatmap_data
from rltune.report.figures.records import Figure, LeftOut
from rltune.report.figures.source import Tables

FIGURES: dict[str, Callable[[Tables], Figure | LeftOut]] = {
    CURVES: curves_data,
    COMPARISON: comparison_data,
    DYNAMICS: dynamics_data,
    HEATMAP: heatmap_data,
    BUDGET: budget_data,
}
"""Name of a figure that every export has -> its data."""


ALL_FIGURES = {**FIGURES, BENCHMARKS: benchmarks_data}
"""The same with the figure of named evaluation sets."""


def figure_data(tables: Tables) -> dict[str, Figure | LeftOut]:
    """Return the data of every figure, or why the tables cannot give it."""
    if not tables.trials:
        return {name: LeftOut(name, "the sweep has no trial") for name in FIGURES}
    figures = {name: make(tables) for name, make in FIGURES.items()}
    if any(set_metric(row.metric) for row in tables.history):
        figures[BENCHMARKS] = ALL_FIGURES[BENCHMARKS](tables)
    return figures
