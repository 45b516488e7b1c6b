"""The budget section: time per part of a step, and what each condition consumed."""

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any

from rltune.report.figures.data_budget import budget_data, spread_text
from rltune.report.figures.notes import conditions_of
from rltune.report.figures.records import Budget, LeftOut, Quantity
from rltune.report.figures.source import Tables
from rltune.report.html.drawing import Drawn, svg_of
from rltune.report.html.gather import TIMINGS
from rltune.report.html.table import Cell, Table

PHASES = ("collect", "score", "credit", "judge", "update", "eval", "sync", "collapse", "checkpoint")
"""Parts of a step in the order of the loop."""

_WIDTH = 1000  # of the longest bar

Seconds = Mapping[str, Mapping[str, float]]  # condition -> part -> seconds per training step


def step_seconds(tables: Tables) -> dict[str, dict[str, float]]:
    """Return condition -> part -> seconds per training step, over all steps of its trials.

    Evaluation and checkpoints count with the share of the steps that had one.
    """
    steps: dict[str, set[tuple[str, int]]] = {}
    by_condition: dict[str, dict[str, list[float]]] = {}
    for row in tables.history:
        if row.metric.startswith(TIMINGS) and row.step > 0 and row.value is not None:
            parts = by_condition.setdefault(row.condition, {})
            parts.setdefault(row.metric.removeprefix(TIMINGS), []).append(row.value)
            steps.setdefault(row.condition, set()).add((row.trial_id, row.step))
    return {
        condition: {part: fsum(took) / len(steps[condition]) for part, took in parts.items()}
        for condition, parts in by_condition.items()
    }


def budget_of(tables: Tables) -> dict[str, Any]:
    """Return the times and what was consumed, as far as they are known."""
    known = step_seconds(tables)
    seconds = {c.label: known[c.label] for c in conditions_of(tables.trials) if c.label in known}
    budget = budget_data(tables)
    parts = _parts(seconds)
    return {
        "parts": parts,
        "bars": _bars(seconds, parts),
        "seconds": _table(seconds, parts) if seconds else None,
        **({"reason": budget.reason} if isinstance(budget, LeftOut) else _budget(budget)),
    }


def _budget(data: Budget) -> dict[str, Any]:
    figure = Drawn("What each trial consumed", data.head.caption, svg_of(data, "budget"))
    labels = [one.label for one in data.head.conditions]
    return {"reason": "", "figure": figure, "consumed": _consumed(data.quantities, labels)}


def _parts(seconds: Seconds) -> list[str]:
    seen = {part for own in seconds.values() for part, value in own.items() if value > 0}
    return [*(part for part in PHASES if part in seen), *sorted(seen - set(PHASES))]


def _bars(seconds: Seconds, parts: Sequence[str]) -> list[dict[str, Any]]:
    """Return a bar per condition, made of its parts."""
    longest = max((fsum(own.values()) for own in seconds.values()), default=0.0) or 1.0
    bars = []
    for label, own in seconds.items():
        x, drawn = 0.0, []
        for place, part in enumerate(parts):
            width = own.get(part, 0.0) / longest * _WIDTH
            words = f"{label}, {part}: {own.get(part, 0.0):.3f} s"
            drawn.append({"x": f"{x:.1f}", "width": f"{width:.1f}", "place": place, "words": words})
            x += width
        words = f"Seconds per training step: {label} {fsum(own.values()):.3g} s"
        bars.append({"condition": label, "parts": drawn, "words": words})
    return bars


def _table(seconds: Seconds, parts: Sequence[str]) -> Table:
    rows = [
        [label, *(f"{v:.3f}" for v in (*(own.get(p, 0.0) for p in parts), fsum(own.values())))]
        for label, own in seconds.items()
    ]
    caption = "Seconds per training step, over all steps of a condition's trials"
    headers = ["condition", *parts, "together"]
    return Table(caption, headers, rows, numeric=range(1, len(headers)))


def _consumed(quantities: Sequence[Quantity], labels: Sequence[str]) -> Table:
    names = [f"{one.label} ({one.unit})" if one.unit else one.label for one in quantities]
    means = [dict(one.means) for one in quantities]
    rows: list[list[Cell]] = [
        [label, *(f"{own[label]:,.0f}" if label in own else "–" for own in means)]
        for label in labels
    ]
    rows.append(["largest mean over smallest", *(spread_text(q.spread) or "–" for q in quantities)])
    caption = "Consumed per trial, mean over the trials that finished"
    return Table(caption, ["condition", *names], rows, numeric=range(1, len(names) + 1))
