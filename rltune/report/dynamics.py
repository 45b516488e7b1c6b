"""The training dynamics of a sweep as RAGEN-2 draws them: success, retrieval accuracy, entropy.

Responses that ignore their prompts can keep a high entropy; retrieval accuracy then is at chance.
Data first (`rltune.report.curves`); this file draws it.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rltune.report.curves import RATES, Band
from rltune.spec.findings import SEEDS_FOR_A_CLAIM

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUCCESS = "heldout/success_rate"
RETRIEVAL = "collapse/retrieval_accuracy"
CHANCE = "collapse/retrieval_chance"
ENTROPY = "collapse/reasoning_entropy"
TRIO = (SUCCESS, RETRIEVAL, ENTROPY)
_LABELS = {
    SUCCESS: "held-out success",
    RETRIEVAL: "retrieval accuracy",
    ENTROPY: "reasoning entropy, nats",
}


@dataclass(frozen=True, slots=True)
class Lines:
    """What is drawn besides the conditions.

    Attributes:
        title: Of the sweep.
        notes: Sentences under the title: what a reader must know before comparing.
        floor: Success of random play; None when not known.
        ceiling: Success of perfect play; None likewise.
        chance: Retrieval accuracy of responses that ignore the prompt; None likewise.

    """

    title: str
    notes: Sequence[str] = ()
    floor: float | None = None
    ceiling: float | None = None
    chance: float | None = None


def draw_dynamics(bands: Sequence[Band], lines: Lines, *, kind: str) -> bytes:
    """Return the figure: three panels over training steps, a line per condition.

    A band is the interval over seeds, where there are enough of them for a claim.

    Args:
        bands: Means over seeds of `TRIO`.
        lines: Title, notes and reference lines.
        kind: `png` or `svg`.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.

    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    conditions = list(dict.fromkeys(band.condition for band in bands))
    figure = Figure(figsize=(7, 8), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(TRIO), 1, sharex=True)
    for axes, metric in zip(panels, TRIO, strict=True):
        for index, condition in enumerate(conditions):
            own = [b for b in bands if (b.condition, b.metric) == (condition, metric)]
            _draw_condition(axes, sorted(own, key=lambda band: band.step), condition, f"C{index}")
        axes.set_ylabel(_LABELS[metric])
        if metric in RATES:
            axes.set_ylim(0, 1.03)
        axes.spines[["top", "right"]].set_visible(False)
    references = [(panels[0], lines.floor, "random floor"), (panels[0], lines.ceiling, "ceiling")]
    for axes, value, name in (*references, (panels[1], lines.chance, "chance")):
        if value is not None:
            axes.axhline(value, color="0.6", linewidth=1, linestyle="--")
            axes.annotate(name, (1, value), xycoords=("axes fraction", "data"), color="0.4",
                          ha="right", va="bottom", fontsize="small")  # fmt: skip
    panels[-1].set_xlabel("training step")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
    notes: str = "\n".join(lines.notes)
    figure.suptitle(f"{lines.title}\n{notes}" if notes else lines.title, fontsize="medium")
    out = io.BytesIO()
    metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {}
    figure.savefig(out, format=kind, dpi=150, metadata=metadata)
    return out.getvalue()


def _draw_condition(axes: "Axes", bands: Sequence[Band], name: str, colour: str) -> None:
    steps = [band.step for band in bands]
    axes.plot(steps, [band.mean for band in bands], color=colour, label=name, marker=".")
    known = [
        (band.step, band.low, band.high)
        for band in bands
        if band.n_seeds >= SEEDS_FOR_A_CLAIM and band.low is not None and band.high is not None
    ]
    if known:
        wide, low, high = zip(*known, strict=True)
        axes.fill_between(wide, low, high, color=colour, alpha=0.15, linewidth=0)
