"""Data of the heat map: the sweep's held-out metric by value of the axis and training step."""

from collections.abc import Sequence

from rltune.analysis.rates import is_rate_metric
from rltune.report.figures.estimates import estimation_for, lines_of, means_of
from rltune.report.figures.notes import (
    estimate_text,
    head_of,
    label_of,
    n_text,
    partial_notes,
)
from rltune.report.figures.records import Cell, HeatMap, LeftOut, Mean, SeedLine
from rltune.report.figures.source import Tables
from rltune.report.render import plural

HEATMAP = "heatmap"


def heatmap_data(tables: Tables) -> HeatMap | LeftOut:
    """Return the estimate of each condition at each gate."""
    metric = tables.trials[0].metric
    lines = lines_of(tables.trials, tables.history, metric)
    if len(lines) < 2:
        reason = f"{plural(len(lines), 'condition')} with values of {metric}; it needs two"
        return LeftOut(HEATMAP, reason)
    how, is_rate = estimation_for(tables.trials, tables.about.estimator), is_rate_metric(metric)
    by_label = {
        label: {m.step: m for m in means_of(own, how, resolution=0.0, is_rate=is_rate)}
        for label, own in lines.items()
    }
    means = [mean for own in by_label.values() for mean in own.values()]
    steps = sorted({mean.step for mean in means})
    if len(steps) < 2:
        return LeftOut(HEATMAP, "one gate only; it needs two")
    cells = [
        _cell(label, step, by_label.get(label, {}).get(step), lines.get(label, ()))
        for label in dict.fromkeys(row.condition for row in tables.trials)
        for step in steps
    ]
    counts = [len(own) for own in lines.values()]
    notes = [note.replace("Dotted, open", "Hatched") for note in partial_notes(means)]
    label = label_of(metric)
    mean = f"{estimate_text(how.estimator)} over {n_text(counts)}"
    caption = f"Cell: {mean if max(counts) > 1 else 'one seed'}"
    caption += "; dash: no value." if any(cell.value is None for cell in cells) else "."
    head = head_of(tables, HEATMAP, notes=notes, caption=caption, alt=_alt(label, steps, cells))
    return HeatMap(head, metric, label, is_rate, how.estimator, tuple(steps), tuple(cells))


def _cell(label: str, step: int, mean: Mean | None, lines: Sequence[SeedLine]) -> Cell:
    if mean is None:
        return Cell(label, step, None, 0, False, ())
    ids = tuple(line.trial_id for line in lines if step in line.steps)
    return Cell(label, step, mean.value, mean.n_seeds, mean.is_partial, ids)


def _alt(label: str, steps: list[int], cells: list[Cell]) -> str:
    known = [cell for cell in cells if cell.value is not None]
    best = max(known, key=lambda cell: cell.value or 0.0)
    least = min(known, key=lambda cell: cell.value or 0.0)
    return (
        f"Heat map of {label}, one row per condition, columns from step {steps[0]} to {steps[-1]}. "
        f"Highest {best.value:.3g} ({best.condition}, step {best.step}), "
        f"lowest {least.value:.3g} ({least.condition}, step {least.step})."
    )
