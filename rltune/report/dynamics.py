"""The training dynamics of a sweep as RAGEN-2 draws them: success, retrieval accuracy, entropy.

Responses that ignore their prompts can keep a high entropy; retrieval accuracy then is at chance.
Data first (`rltune.report.curves` and the functions here); `draw_dynamics` draws it.
"""

import io
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mode
from typing import TYPE_CHECKING, Any

from rltune.report.audit import Audit, Verdict
from rltune.report.curves import RATES, Band, Point
from rltune.spec.findings import SEEDS_FOR_A_CLAIM

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
# Okabe and Ito (2008): told apart with any colour vision. Markers tell apart lines that coincide.
_COLOURS = ("#000000", "#E69F00", "#0072B2", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v")
_DASHES = ("-", "--", ":")
_STYLE = {
    "svg.hashsalt": "rltune",  # the same data gives the same file
    "text.parse_math": False,  # a `$` in a title is a dollar
    "text.usetex": False,
}
_MAX_WARNINGS = 3  # of the audit, on the figure
_NOTE_COLUMNS = 92  # characters of a note that fit on one line of the figure


@dataclass(frozen=True, slots=True)
class Lines:
    """What is drawn besides the conditions.

    Attributes:
        title: Of the sweep.
        notes: Sentences under the title: what a reader must know before comparing.
        control: Label of the condition that the others are compared with.
        floor: Success of random play; None when not known.
        ceiling: Success of perfect play; None likewise.
        chance: Retrieval accuracy of responses that ignore the prompt; None likewise.

    """

    title: str
    notes: Sequence[str] = ()
    control: str = ""
    floor: float | None = None
    ceiling: float | None = None
    chance: float | None = None


def only(values: Iterable[float]) -> float | None:
    """Return the one value that all have; None where they differ, or without any."""
    known = set(values)
    return known.pop() if len(known) == 1 else None


def chance_of(points: Iterable[Point]) -> float | None:
    """Return the chance level of retrieval accuracy; None where conditions differ in it.

    It is 1 / prompts. A step in which a prompt fell out has another; the usual one counts.
    """
    found: dict[str, list[float]] = {}
    for point in points:
        if point.metric == CHANCE:
            found.setdefault(point.condition, []).append(point.value)
    return only(mode(values) for values in found.values())


def notes_of(audit: Audit, bands: Sequence[Band], stamps: Sequence[str] = ()) -> list[str]:
    """Return what a reader must know before comparing the lines of the figure.

    Args:
        audit: Of the run folder.
        bands: What is drawn.
        stamps: Hidden second axes that the sweep did not remedy and did not accept.

    """
    counts: dict[tuple[str, str], list[int]] = {}
    for band in bands:
        counts.setdefault((band.condition, band.metric), []).append(band.n_seeds)
    fewest = min((max(found) for found in counts.values()), default=0)
    notes = _verdict_notes(audit)
    if fewest < SEEDS_FOR_A_CLAIM:
        seeds = f"{fewest} seed{'' if fewest == 1 else 's'}"
        if any(max(found) > fewest for found in counts.values()):
            seeds = f"Only {seeds} in a condition"
        notes.append(f"{seeds}: no claim can be made, and no band is drawn.")
    if any(min(found) < max(found) for found in counts.values()):
        notes.append("Some points have fewer seeds than others; dynamics.csv counts them.")
    return [*notes, *_warning_notes(audit), *stamps]


def _verdict_notes(audit: Audit) -> list[str]:
    match audit.verdict:
        case Verdict.FAILED:
            return ["The audit FAILED: these lines do not prove a comparison."]
        case Verdict.CONFOUNDED:
            return ["CONFOUNDED: more than the axis differs, so nothing follows about it."]
        case Verdict.INCOMPLETE:
            return [f"Not finished: {audit.finished} of {audit.trials} trials have ended."]
    return []


def _warning_notes(audit: Audit) -> list[str]:
    """Return the audit's warnings; of many the first ones, and where the others stand."""
    found = [f"{item.rule} warning: {item.message}" for item in audit.report.warnings]
    rest = len(found) - _MAX_WARNINGS
    if rest <= 0:
        return found
    more = f"{rest} more warning{'' if rest == 1 else 's'} of the audit: see audit.json."
    return [*found[:_MAX_WARNINGS], more]


def draw_dynamics(bands: Sequence[Band], lines: Lines, *, kind: str) -> bytes:
    """Return the figure: three panels over training steps, a line per condition.

    A band is the interval over seeds, where there are enough of them for a claim: that of two
    seeds is wider than the panel.

    Args:
        bands: Means over seeds of `TRIO`.
        lines: Title, notes and reference lines.
        kind: `png` or `svg`.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.

    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7, 8), layout="constrained")
        FigureCanvasAgg(figure)
        _draw_panels(figure, bands, lines)
        _draw_title(figure, lines)
        out = io.BytesIO()
        metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {}
        figure.savefig(out, format=kind, dpi=150, metadata=metadata)
    return out.getvalue()


def _draw_panels(figure: "Figure", bands: Sequence[Band], lines: Lines) -> None:
    conditions = list(dict.fromkeys(band.condition for band in bands))
    panels = figure.subplots(len(TRIO), 1, sharex=True)
    for axes, metric in zip(panels, TRIO, strict=True):
        for index, condition in enumerate(conditions):
            own = [b for b in bands if (b.condition, b.metric) == (condition, metric)]
            name = f"{condition} (control)" if condition == lines.control else condition
            _draw_condition(axes, own, name, index)
        axes.set_ylabel(_LABELS[metric])
        axes.set_ylim(bottom=0.0 if metric in RATES else max(0.0, axes.get_ylim()[0]))
        if metric in RATES:
            axes.set_ylim(top=1.03)
        axes.spines[["top", "right"]].set_visible(False)
    _draw_reference(panels[0], lines.floor, "random floor")
    _draw_reference(panels[0], lines.ceiling, "ceiling")
    _draw_reference(panels[1], lines.chance, "chance")
    panels[-1].set_xlabel("training step")
    panels[-1].xaxis.get_major_locator().set_params(integer=True)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, names, loc="outside lower center", ncols=3, frameon=False, title=_said_of(bands)
    )


def _said_of(bands: Sequence[Band]) -> str:
    """Return what a line and a band of the figure are."""
    seeds = sorted({band.n_seeds for band in bands})
    if seeds == [1]:
        return "one seed"
    count = f"{seeds[0]} seeds" if len(seeds) == 1 else "seeds"
    has_band = any(_is_drawn(band) for band in bands)
    return f"mean over {count}" + (", band: 95 % t interval" if has_band else "")


def _is_drawn(band: Band) -> bool:
    return band.low is not None and band.n_seeds >= SEEDS_FOR_A_CLAIM


def _draw_condition(axes: "Axes", bands: Sequence[Band], name: str, index: int) -> None:
    colour, marker = _COLOURS[index % len(_COLOURS)], _MARKERS[index % len(_MARKERS)]
    dash = _DASHES[index // len(_COLOURS) % len(_DASHES)]  # the colours begin again, dashed
    steps = [band.step for band in bands]
    axes.plot(
        steps, [band.mean for band in bands], label=name, color=colour, linestyle=dash,
        linewidth=1.5, marker=marker, markersize=6, markerfacecolor="none",
    )  # fmt: skip
    known = [(band.step, band.low, band.high) for band in bands if _is_drawn(band)]
    if known:
        wide, low, high = zip(*known, strict=True)
        axes.fill_between(wide, low, high, color=colour, alpha=0.15, linewidth=0)


def _draw_reference(axes: "Axes", value: float | None, name: str) -> None:
    if value is None:
        return
    axes.axhline(value, color="0.6", linewidth=1, linestyle="--", zorder=0)
    axes.annotate(name, (1.01, value), xycoords=("axes fraction", "data"), color="0.4",
                  ha="left", va="center", fontsize="small")  # fmt: skip


def _draw_title(figure: "Figure", lines: Lines) -> None:
    """Write the title, and below it the notes in red: they must survive a copied figure."""
    title = figure.suptitle(textwrap.fill(lines.title, 70), fontsize="large", ha="left")
    notes = "\n".join(textwrap.fill(note, _NOTE_COLUMNS) for note in lines.notes)
    figure.axes[0].set_title(notes, loc="left", fontsize="small", color="#B00020")
    figure.draw_without_rendering()  # only now the panels have their place
    title.set_x(figure.axes[0].get_position().x0)
