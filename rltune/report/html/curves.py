"""Measures over training steps: estimates with intervals, seeds as thin lines, levels."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from rltune.analysis.rates import RATES
from rltune.report.figures.estimates import estimation_for, lines_of, means_of
from rltune.report.figures.notes import label_of
from rltune.report.figures.records import Mean, Panel, SeedLine, Series
from rltune.report.figures.source import Tables
from rltune.report.html.colours import colour, dash, mark
from rltune.report.html.gather import TRAINING
from rltune.report.html.markup import Child, Html, details, el, join, table
from rltune.report.html.scale import Scale, plain, rounded, scale_over, steps_ticks, ticks

Item = TypeVar("Item")
WIDTH, HEIGHT = 460, 290
LEFT, RIGHT, TOP, BOTTOM = 54, 14, 12, 44

MOST_POINTS = 120
"""Points of one line; of a longer one every n-th and the last are drawn."""

MOST_BANDS = 4
"""Conditions whose intervals are drawn as bands; more would hide each other."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where the panel's values go."""

    x: Scale
    y: Scale


def training_panels(tables: Tables) -> list[Panel]:
    """Return the measures of training that any trial has, as the figures' data estimate them."""
    how = estimation_for(tables.trials, tables.about.estimator)
    panels = []
    for metric in TRAINING:
        lines = lines_of(tables.trials, tables.history, metric)
        is_rate = metric in RATES
        series = tuple(
            Series(condition, means_of(own, how, resolution=0.0, is_rate=is_rate), tuple(own))
            for condition, own in lines.items()
        )
        if series and _moves(series):
            panels.append(Panel(metric, label_of(metric), is_rate, (), series))
    return panels


def _moves(series: Sequence[Series]) -> bool:
    """Whether a measure has more than one value: a flat line needs no panel."""
    return len({value for one in series for line in one.seeds for value in line.values}) > 1


def curves_figure(panel: Panel, labels: Sequence[str], *, caption: str) -> Html:
    """Return the sweep's measure as a figure with its intervals and its numbers as a table.

    Args:
        panel: What to draw.
        labels: Of all conditions; the place of one decides its colour.
        caption: What the marks mean.

    """
    is_crowded = len(panel.series) > MOST_BANDS
    drawn = draw_panel(_without_bands(panel) if is_crowded else panel, labels)
    more = " So many bands would hide each other: the numbers have them." if is_crowded else ""
    return el(
        "figure",
        drawn,
        el("figcaption", el("b", f"{panel.label}."), f" {caption}{more}"),
        details("Numbers of this figure", _numbers(panel)),
    )


def training_figure(panel: Panel, labels: Sequence[str]) -> Html:
    """Return a measure of training as a small figure: no claim is made from it, so no interval."""
    drawn = draw_panel(_without_bands(panel), labels)
    return el("figure", drawn, el("figcaption", el("code", panel.label)))


def _without_bands(panel: Panel) -> Panel:
    series = tuple(
        replace(one, means=tuple(replace(mean, low=None, high=None) for mean in one.means))
        for one in panel.series
    )
    return replace(panel, series=series)


def draw_panel(panel: Panel, labels: Sequence[str]) -> Html:
    """Return the drawing of a panel, which says in words where its lines end."""
    last = max((mean.step for one in panel.series for mean in one.means), default=1)
    frame = _Frame(
        Scale(0, max(1, last), LEFT, WIDTH - RIGHT),
        scale_over(
            _heights(panel),
            start=HEIGHT - BOTTOM,
            end=TOP,
            limits=(0.0, 1.0) if panel.is_rate else None,
        ),
    )
    parts = [_axes(frame, last)]
    for layer in (_band, _seeds, _means):
        parts += [_of(layer(one, frame, labels), one, labels) for one in panel.series]
    parts += _levels(panel, frame)  # last: their names stay readable over the lines
    return el(
        "svg",
        *parts,
        class_="chart",
        role="img",
        aria_label=in_words(panel),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
    )


def in_words(panel: Panel) -> str:
    """Return a panel in words: where each condition ends, and the levels."""
    ends = [f"{one.condition} {_estimate(one.means[-1])}" for one in panel.series if one.means]
    levels = [f"{level.name} {level.value:.3g}" for level in panel.references]
    said = f"Lines of {panel.label} over training steps. At the end: {'; '.join(ends)}."
    return f"{said} Levels: {', '.join(levels)}." if levels else said


def _estimate(mean: Mean) -> str:
    around = "" if mean.low is None else f" [{mean.low:.3g}, {mean.high:.3g}]"
    return f"{mean.value:.3g}{around}"


def _heights(panel: Panel) -> Iterable[float]:
    for one in panel.series:
        for line in one.seeds:
            yield from line.values
        for mean in one.means:
            yield from (v for v in (mean.low, mean.high) if v is not None)
    yield from (level.value for level in panel.references)


def _of(drawn: Html, one: Series, labels: Sequence[str]) -> Html:
    """Return a part of one condition, which the legend can hide."""
    index = labels.index(one.condition)
    return el("g", drawn, class_=colour(index), data_c=index)


def _axes(frame: _Frame, last: int) -> Html:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    rows = [
        join(
            el("path", d=f"M{LEFT} {frame.y.at(tick)}H{right}", class_="rule"),
            el("text", plain(tick), x=LEFT - 7, y=frame.y.at(tick) + 4.5, class_="end"),
        )
        for tick in ticks(frame.y.low, frame.y.high)
    ]
    columns = [
        el("text", plain(tick), x=frame.x.at(tick), y=bottom + 18, class_="mid")
        for tick in steps_ticks(last)
    ]
    name = el("text", "training step", x=(LEFT + right) / 2, y=HEIGHT - 5, class_="mid soft")
    base = el("path", d=f"M{LEFT} {bottom}H{right}", class_="axis")
    return el("g", *rows, *columns, base, name)


def _levels(panel: Panel, frame: _Frame) -> Iterable[Html]:
    """Yield the levels that all conditions share, their names set where they do not collide."""
    taken: list[float] = []
    for level in sorted(panel.references, key=lambda one: one.value):
        y = frame.y.at(level.value)
        at = y - 5
        while any(abs(at - other) < 14 for other in taken):
            at -= 14
        taken.append(at)
        yield el("path", d=f"M{LEFT} {y}H{WIDTH - RIGHT}", class_="level")
        yield el("text", f"{level.name} {level.value:.3g}", x=LEFT + 6, y=at, class_="soft")


def _band(one: Series, frame: _Frame, labels: Sequence[str]) -> Html:
    known = [mean for mean in _thin(one.means) if mean.low is not None and mean.high is not None]
    if len(known) < 2:
        return Html("")
    upper = [f"{frame.x.at(m.step)} {frame.y.at(m.high or 0.0)}" for m in known]
    lower = [f"{frame.x.at(m.step)} {frame.y.at(m.low or 0.0)}" for m in reversed(known)]
    return el("path", d=f"M{'L'.join((*upper, *lower))}z", class_="band")


def _seeds(one: Series, frame: _Frame, labels: Sequence[str]) -> Html:
    if len(one.seeds) < 2:
        return Html("")
    return join(*(el("path", d=_path(_points(line), frame), class_="seed") for line in one.seeds))


def _points(line: SeedLine) -> list[tuple[int, float]]:
    return _thin(list(zip(line.steps, line.values, strict=True)))


def _means(one: Series, frame: _Frame, labels: Sequence[str]) -> Html:
    """Return the estimates as a line that ends in the condition's mark; a selection is dotted."""
    index, means = labels.index(one.condition), _thin(one.means)
    whole = [mean for mean in means if not mean.is_partial]
    parts = [m for i, m in enumerate(means) if m.is_partial or _next_is_partial(means, i)]
    drawn = [
        el(
            "path",
            d=_path([(mean.step, mean.value) for mean in points], frame),
            class_=name,
            stroke_dasharray=dashes,
        )
        for points, name, dashes in ((whole, "mean", dash(index)), (parts, "mean partial", "1 4"))
        if len(points) > 1
    ]
    end = means[-1]
    return join(*drawn, mark(index, frame.x.at(end.step), frame.y.at(end.value)))


def _next_is_partial(means: Sequence[Mean], at: int) -> bool:
    return at + 1 < len(means) and means[at + 1].is_partial


def _path(points: Sequence[tuple[int, float]], frame: _Frame) -> str:
    return "M" + "L".join(f"{frame.x.at(step)} {frame.y.at(value)}" for step, value in points)


def _thin(values: Sequence[Item]) -> list[Item]:
    every = -(-len(values) // MOST_POINTS)
    kept = list(values[::every]) if every > 1 else list(values)
    return kept if not values or kept[-1] is values[-1] else [*kept, values[-1]]


def _numbers(panel: Panel) -> Html:
    """Return the estimates at the drawn steps: one row per condition and step."""
    rows: list[list[Child]] = [
        [
            one.condition,
            mean.step,
            rounded(mean.value),
            "–" if mean.low is None else f"[{rounded(mean.low)}, {rounded(mean.high)}]",
            mean.n_seeds,
        ]
        for one in panel.series
        for mean in _thin(one.means)
    ]
    headers = ["condition", "step", "mean", "95 % interval", "seeds"]
    return table(f"{panel.label} over training", headers, rows, numeric=(1, 2, 3, 4))
