"""The results section: comparison with the control, figures, training."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from rltune.analysis.table_summary import power_of, verdicts_of
from rltune.comparability.audit_same_run import one_runs
from rltune.gate import set_metric
from rltune.report.figures.data_benchmarks import benchmarks_data
from rltune.report.figures.data_comparison import comparison_data
from rltune.report.figures.data_curves import curves_data, dynamics_data, measure_data
from rltune.report.figures.data_heatmap import heatmap_data
from rltune.report.figures.draw_curves import TOGETHER
from rltune.report.figures.notes import conditions_of, partial_notes, seed_notes
from rltune.report.figures.records import Benchmarks, Comparisons, Curves, LeftOut, Panel, SeedLine
from rltune.report.figures.source import Tables
from rltune.report.figures.style import looks_of
from rltune.report.html.drawing import Drawn, Link, svg_of, themed
from rltune.report.html.gather import TRAINING, Evidence
from rltune.report.html.table import Cell, Table, rounded, signed

MOST_ANSWERS = 6
"""Conditions that have a sentence each before their table."""

MOST_OPEN = 3
"""Measures of training that are seen at once; the others open."""

MOST_POINTS = 120
"""Steps of a line of training, and in the numbers; of more, every n-th and the last."""

Item = TypeVar("Item")


def results_of(evidence: Evidence, places: Mapping[str, str]) -> dict[str, Any]:
    """Return what came out: the comparison to the control, figures, training.

    `places` is trial id -> id of its row on the page.
    """
    tables = evidence.tables
    compared, curves = comparison_data(tables), curves_data(tables)
    return {
        **_answers(tables, compared),
        "power": power_of(tables.trials, one_runs(evidence.audit.report.warnings)),
        "no_curves": curves.reason if isinstance(curves, LeftOut) else "",
        "legend": _legend(tables),
        "figures": list(_figures(tables, curves, compared, places)),
        "heatmap": _heatmap(tables),
        "training": list(training_of(tables)),
        "has_seeds": len(conditions_of(tables.trials)) <= TOGETHER,
    }


def _answers(tables: Tables, compared: Comparisons | LeftOut) -> dict[str, Any]:
    """Return what may be said of each condition, and the table behind it."""
    verdicts = verdicts_of(tables.trials)
    if isinstance(compared, LeftOut):
        return {
            "reason": compared.reason,
            "notes": [],
            "answers": verdicts,
            "compared": None,
            "looks": None,
        }
    return {
        "reason": "",
        "notes": seed_notes([len(row.pairs) for row in compared.rows if row.pairs]),
        "answers": verdicts if len(compared.rows) <= MOST_ANSWERS else [],
        "compared": _compared(compared),
        "looks": _looks(compared),
    }


def _legend(tables: Tables) -> list[dict[str, Any]]:
    conditions = conditions_of(tables.trials)
    looks = looks_of(conditions)
    return [
        {
            "short": one.short,
            "is_control": one.is_control,
            "colour": themed(looks[one.label].colour),
        }
        for one in conditions
    ]


def _compared(data: Comparisons) -> Table:
    adjusted = "p, adjusted" if any(row.looks for row in data.rows) else "p, Holm"
    headers = ["condition", "seeds", "difference", "95 % interval", "p, unadjusted", adjusted]
    rows: list[list[Cell]] = [
        [
            row.condition,
            len(row.pairs),
            signed(row.delta),
            "–" if row.low is None or row.high is None else _span(row.low, row.high),
            _p(row.p),
            _p(row.p_holm),
            row.verdict,
        ]
        for row in data.rows
    ]
    caption = f"{data.label} at the last gate, minus the control {data.control}"
    return Table(caption, [*headers, "verdict"], rows, numeric=(1, 2, 3, 4, 5))


def _looks(data: Comparisons) -> Table | None:
    """Return every look of seeds until decided; None for a list of seeds."""
    rows: list[list[Cell]] = [
        [
            row.condition,
            look.n,
            signed(look.mean),
            "–"
            if look.interval is None
            else f"[{look.interval.low:+.3f}, {look.interval.high:+.3f}]",
            _p(look.p),
            f"{look.boundary:.2g}",
            look.decision.value,
        ]
        for row in data.rows
        for look in row.looks
    ]
    if not rows:
        return None
    headers = ["condition", "seeds", "difference", "adjusted interval", "p", "boundary", "decision"]
    caption = "Every look: all intervals together hold the truth with 95 %"
    return Table(caption, headers, rows, numeric=(1, 2, 3, 4, 5))


def _span(low: float, high: float) -> str:
    return f"[{low:+.3f}, {high:+.3f}]"


def _p(value: float | None) -> str:
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def _figures(
    tables: Tables,
    curves: Curves | LeftOut,
    compared: Comparisons | LeftOut,
    places: Mapping[str, str],
) -> Iterator[Drawn]:
    if isinstance(curves, Curves):
        words = {
            row.trial_id: f"{row.condition}, seed {row.seed}: {rounded(row.final)}"
            for row in tables.trials
        }
        yield _curves(curves, "curves", _title(curves.panels[0].label), _links(words, places))
    if isinstance(compared, Comparisons):
        yield _comparison(compared, places)
    if any(set_metric(row.metric) for row in tables.history):
        yield from _benchmarks(benchmarks_data(tables))
    dynamics = dynamics_data(tables)
    if isinstance(dynamics, Curves):
        yield _curves(dynamics, "dynamics", "Training dynamics", {})


def _title(label: str) -> str:
    return label[:1].upper() + label[1:]


def _links(words: Mapping[str, str], places: Mapping[str, str]) -> dict[str, Link]:
    return {trial_id: Link(places[trial_id], text) for trial_id, text in words.items()}


def _curves(data: Curves, name: str, title: str, links: Mapping[str, Link]) -> Drawn:
    means = [mean for panel in data.panels for one in panel.series for mean in one.means]
    levels = [one.text for panel in data.panels for one in panel.references]
    known = [f"Levels: {', '.join(levels)}."] if levels else []
    caption = " ".join((data.head.caption, *known, *partial_notes(means)))
    numbers = tuple(_numbers(panel) for panel in data.panels if panel.series)
    return Drawn(title, caption, svg_of(data, name, links=links), numbers)


def _comparison(data: Comparisons, places: Mapping[str, str]) -> Drawn:
    words = {
        pair.trial_id: f"{row.condition}, seed {pair.seed}: {pair.difference:+.3f} "
        f"({rounded(pair.value)} against {rounded(pair.control_value)})"
        for row in data.rows
        for pair in row.pairs
    }
    rows: list[list[Cell]] = [
        [row.condition, p.seed, rounded(p.value), rounded(p.control_value), signed(p.difference)]
        for row in data.rows
        for p in row.pairs
    ]
    headers = ["condition", "seed", "value", "control", "difference"]
    caption = f"{data.label} at the last gate, seed by seed"
    return Drawn(
        "Each seed against its control",
        data.head.caption,
        svg_of(data, "comparison", links=_links(words, places)),
        (Table(caption, headers, rows, numeric=(1, 2, 3, 4)),),
    )


def _benchmarks(data: Benchmarks | LeftOut) -> Iterator[Drawn]:
    """Yield the named evaluation sets with their numbers; nothing where no trial measured them."""
    if isinstance(data, LeftOut):
        return
    rows: list[list[Cell]] = [
        [
            point.condition,
            point.benchmark,
            label,
            rounded(point.value),
            "–" if point.low is None else f"[{rounded(point.low)}, {rounded(point.high)}]",
            point.n_seeds,
        ]
        for measure, label in zip(data.measures, data.labels, strict=True)
        for point in data.points
        if point.measure == measure
    ]
    headers = ["condition", "set", "measure", "mean", "95 % interval", "seeds"]
    numbers = Table("Each set at the last gate", headers, rows, numeric=(3, 4, 5))
    yield Drawn("Evaluation sets", data.head.caption, svg_of(data, "benchmarks"), (numbers,))


def _heatmap(tables: Tables) -> Drawn | None:
    data = heatmap_data(tables)
    drawn = None if isinstance(data, LeftOut) else svg_of(data, "heatmap")
    if isinstance(data, LeftOut) or drawn is None:
        return None
    return Drawn(_title(data.label), data.head.caption, drawn)


def training_of(tables: Tables) -> Iterator[Drawn]:
    """Yield the measures of training that any trial has: no claim is made, so no intervals."""
    for at, metric in enumerate(TRAINING):
        data = measure_data(tables, metric, figure="training")
        if isinstance(data, LeftOut) or not _moves(data.panels[0]):
            continue
        has_seeds = len(data.head.conditions) <= TOGETHER
        data = replace(data, panels=(_plain(data.panels[0], has_seeds=has_seeds),))
        drawn = svg_of(data, f"training-{at}", has_legend=False)
        numbers = () if drawn else (_numbers(data.panels[0]),)
        yield Drawn(data.panels[0].label, "", drawn, numbers)


def _moves(panel: Panel) -> bool:
    """Tell whether a measure has more than one value: a flat line needs no panel."""
    return len({v for one in panel.series for line in one.seeds for v in line.values}) > 1


def _plain(panel: Panel, *, has_seeds: bool) -> Panel:
    """Return a panel without intervals, with fewer points, and with or without its seeds."""
    series = tuple(
        replace(
            one,
            means=tuple(replace(mean, low=None, high=None) for mean in _thin(one.means)),
            seeds=tuple(map(_thin_line, one.seeds)) if has_seeds else (),
        )
        for one in panel.series
    )
    return replace(panel, series=series)


def _thin_line(line: SeedLine) -> SeedLine:
    return replace(line, steps=tuple(_thin(line.steps)), values=tuple(_thin(line.values)))


def _numbers(panel: Panel) -> Table:
    """Return the estimates of a panel: one row per condition and step."""
    rows: list[list[Cell]] = [
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
    return Table(f"{panel.label} over training", headers, rows, numeric=(1, 2, 3, 4))


def _thin(values: Sequence[Item]) -> list[Item]:
    every = -(-len(values) // MOST_POINTS) or 1
    kept = list(values[::every])
    return kept if not values or (len(values) - 1) % every == 0 else [*kept, values[-1]]
