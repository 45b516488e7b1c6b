"""Data of the generation chart: each generation of a model beside the one before."""

from rltune.analysis.generations import GenerationRow, GenerationTable
from rltune.analysis.rates import is_rate_metric
from rltune.analysis.tables import OK
from rltune.report.figures.notes import label_of
from rltune.report.figures.records import GenerationChart, Head

GENERATIONS = "generations"


def generations_data(table: GenerationTable) -> GenerationChart:
    """Return what the chart shows."""
    youngest = table.rows[-1].name
    notes = []
    if not any(row.fresh for row in table.rows):
        notes.append("No fresh tasks were played: a gate chose each generation on the tasks shown.")
    if table.fresh_looks > 1:
        notes.append(f"Fresh tasks were played {table.fresh_looks} times for this chain.")
    if table.missing:
        notes.append(f"Older generations are missing: {table.missing}")
    has_settings = any(row.departs == "settings" for row in table.rows)
    caption = (
        "Lines: 95 % intervals over tasks; differences are paired where the tasks are the same"
    )
    caption += "; dotted: took settings, not the model, of the one before" * has_settings
    counts = [row.fresh.tasks for row in table.rows if row.fresh]
    caption += f"; {max(counts)} fresh tasks." if counts else "."
    head = Head(
        figure=GENERATIONS,
        sweep="",
        run=youngest.partition("/")[0],
        title=f"{len(table.rows) - 1} generations up to {youngest}",
        axis="generation",
        mark=OK,
        notes=tuple(notes),
        caption=caption,
        alt=" ".join(map(_alt, table.rows)),
        conditions=(),
    )
    label = label_of(table.metric).removeprefix("held-out ")  # fresh tasks are not held out
    return GenerationChart(head, table.metric, label, is_rate_metric(table.metric), table.rows)


def _alt(row: GenerationRow) -> str:
    parts = [f"Generation {row.number}, {row.name}"]
    if row.fresh is not None:
        parts.append(f"{row.fresh.value:.3g} on {row.fresh.tasks} fresh tasks")
    if row.heldout is not None:
        parts.append(f"{row.heldout.before:.3g} to {row.heldout.after:.3g} on held-out tasks")
    return f"{', '.join(parts)}."
