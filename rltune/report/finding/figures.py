"""The two drawings of a finding, from its tables alone."""

from rltune.report.figures.data_comparison import comparison_data
from rltune.report.figures.data_curves import CURVES, measures_data
from rltune.report.figures.draw import draw
from rltune.report.figures.records import Figure, LeftOut
from rltune.report.finding.records import Finding

FIGURE, COMPARISON = "figure.svg", "comparison.svg"


def figures_of(finding: Finding) -> dict[str, Figure]:
    """Return file name -> what it shows; a figure that the tables do not allow is left out.

    `figure.svg` is the sweep's metric over training, with a panel for each other measure;
    `comparison.svg` is each condition against the control, seed by seed.
    """
    tables = finding.tables
    made = {
        FIGURE: measures_data(tables, (finding.metric, *finding.metrics), figure=CURVES),
        COMPARISON: comparison_data(tables),
    }
    return {name: data for name, data in made.items() if not isinstance(data, LeftOut)}


def drawn(finding: Finding) -> dict[str, bytes]:
    """Return file name -> SVG; needs matplotlib, and the same matplotlib gives the same bytes."""
    return {name: draw(data, kind="svg") for name, data in figures_of(finding).items()}
