"""How every figure looks: one column wide, Okabe and Ito's colours, told apart in grey, too."""

from typing import Any, NamedTuple

from rltune.report.figures.records import Condition

KINDS = ("png", "svg", "pdf")
WIDTH = 3.3  # inches: one column of a two-column paper
DPI = 300
TEXT, TITLE = 7.0, 8.0  # points
INK, QUIET, ALARM = "#000000", "#555555", "#B00020"
GRID = "#DDDDDD"

RC: dict[str, Any] = {
    "svg.hashsalt": "rltune",  # the same data gives the same file
    "svg.fonttype": "none",  # text stays text
    "pdf.fonttype": 42,
    "text.parse_math": False,  # a `$` in a title is a dollar
    "text.usetex": False,
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same everywhere
    "font.size": TEXT,
    "axes.labelsize": TEXT,
    "axes.titlesize": TEXT,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "xtick.labelsize": TEXT,
    "ytick.labelsize": TEXT,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.fontsize": TEXT,
    "hatch.linewidth": 0.5,
    "lines.linewidth": 1.3,
}

# Okabe and Ito (2008), without the yellow, which white paper swallows. Black is the control's.
COLOURS = ("#E69F00", "#0072B2", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
_MARKERS = ("s", "^", "D", "v", "P", "X", "<", ">")
_DASHES: tuple[Any, ...] = ((0, (4, 1.3)), (0, (6, 1.2, 1.2, 1.2)), (0, (2, 0.9)), "-")
DOTTED = (0, (1, 1.2))


class Look(NamedTuple):
    """How one condition is drawn: colour, marker and line style; no two share all three."""

    colour: str
    marker: str
    dash: Any


def looks_of(conditions: tuple[Condition, ...]) -> dict[str, Look]:
    """Return the look of each condition, the same in all figures of a sweep."""
    looks: dict[str, Look] = {}
    for one in conditions:
        i = len([label for label in looks if looks[label].marker != "o"])
        looks[one.label] = (
            Look(INK, "o", "-")
            if one.is_control
            else Look(
                COLOURS[i % len(COLOURS)],
                _MARKERS[i % len(_MARKERS)],
                _DASHES[i % len(_DASHES)],
            )
        )
    return looks


def name_of(condition: Condition) -> str:
    """Return the name of a condition on a figure, beside the key of the axis."""
    return f"{condition.short} (control)" if condition.is_control else condition.short
