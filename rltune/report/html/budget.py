"""The budget section: time per part of a step, and what each condition consumed."""

from collections.abc import Mapping, Sequence
from math import fsum

from rltune.report.figures.data_budget import budget_data, spread_text
from rltune.report.figures.notes import conditions_of
from rltune.report.figures.records import LeftOut, Quantity
from rltune.report.figures.source import Tables
from rltune.report.html.gather import TIMINGS
from rltune.report.html.markup import Html, details, el, join, table
from rltune.report.html.scale import Scale, plain, ticks

WIDTH = 460
LEFT, RIGHT, TOP, BOTTOM = 122, 16, 8, 40
ROW = 30
PHASES = ("collect", "score", "credit", "judge", "update", "eval", "sync", "collapse", "checkpoint")
"""Parts of a step in the order of the loop."""


def step_seconds(tables: Tables) -> dict[str, dict[str, float]]:
    """Return condition -> part -> seconds a training step, over all steps of its trials.

    Evaluation and checkpoints count with the share of the steps that had one.
    """
    totals: dict[str, dict[str, float]] = {}
    steps: dict[str, set[tuple[str, int]]] = {}
    found: dict[tuple[str, str], list[float]] = {}
    for row in tables.history:
        if row.metric.startswith(TIMINGS) and row.step > 0 and row.value is not None:
            found.setdefault((row.condition, row.metric.removeprefix(TIMINGS)), []).append(
                row.value
            )
            steps.setdefault(row.condition, set()).add((row.trial_id, row.step))
    for (condition, part), values in found.items():
        totals.setdefault(condition, {})[part] = fsum(values) / len(steps[condition])
    return totals


def budget_section(tables: Tables) -> Html:
    """Return the section on time and budget."""
    seconds = step_seconds(tables)
    title = el("h2", "Where did the time and the budget go?")
    parts: list[Html] = [_time_figure(tables, seconds)] if seconds else []
    budget = budget_data(tables)
    if isinstance(budget, LeftOut):
        parts.append(el("p", f"No budget yet: {budget.reason}."))
    else:
        labels = [one.label for one in budget.head.conditions]
        parts.append(_budget_table(budget.quantities, labels))
    return el("section", title, *parts, id="budget", aria_label="Time and budget")


def _parts(seconds: Mapping[str, Mapping[str, float]]) -> list[str]:
    seen = {part for own in seconds.values() for part, value in own.items() if value > 0}
    return [*(part for part in PHASES if part in seen), *sorted(seen - set(PHASES))]


def _time_figure(tables: Tables, seconds: Mapping[str, Mapping[str, float]]) -> Html:
    parts = _parts(seconds)
    key = [
        el("li", el("span", "", class_=f"chip p{i % 9}"), f" {part}")
        for i, part in enumerate(parts)
    ]
    labels = [one.label for one in conditions_of(tables.trials) if one.label in seconds]
    rows = [
        [
            label,
            *(f"{seconds[label].get(part, 0.0):.3f}" for part in parts),
            f"{fsum(seconds[label].values()):.3f}",
        ]
        for label in labels
    ]
    numeric = range(1, len(parts) + 2)
    return el(
        "figure",
        _draw_time(tables, seconds, parts),
        el("ul", *key, class_="key", aria_label="Parts of a step"),
        el(
            "figcaption",
            el("b", "Seconds a training step"),
            " by part, over all steps of the trials "
            "of a condition; evaluation and checkpoints by their share.",
        ),
        details(
            "Numbers of this figure",
            table(
                "Seconds a training step", ["condition", *parts, "together"], rows, numeric=numeric
            ),
        ),
    )


def _draw_time(
    tables: Tables, seconds: Mapping[str, Mapping[str, float]], parts: Sequence[str]
) -> Html:
    shown = [one for one in conditions_of(tables.trials) if one.label in seconds]
    height = TOP + ROW * len(shown) + BOTTOM
    longest = max(fsum(own.values()) for own in seconds.values()) or 1.0
    x = Scale(0.0, longest * 1.04, LEFT, WIDTH - RIGHT)
    bottom = height - BOTTOM
    drawn = [
        join(
            el("path", d=f"M{x.at(tick)} {TOP}V{bottom}", class_="rule"),
            el("text", plain(tick), x=x.at(tick), y=bottom + 17, class_="mid"),
        )
        for tick in ticks(0.0, x.high, most=4)
    ]
    for at, one in enumerate(shown):
        y, start = TOP + ROW * at + 5, 0.0
        name = one.short if len(one.short) < 16 else f"{one.short[:14]}…"
        drawn.append(el("text", name, x=LEFT - 10, y=y + 14.5, class_="end"))
        for i, part in enumerate(parts):
            took = seconds[one.label].get(part, 0.0)
            width = round(x.at(start + took) - x.at(start), 1)
            said = f"{one.label}, {part}: {took:.3f} s"
            drawn.append(
                el(
                    "rect",
                    el("title", said),
                    x=x.at(start),
                    y=y,
                    width=width,
                    height=20,
                    class_=f"p{i % 9}",
                )
            )
            start += took
    middle = (LEFT + WIDTH - RIGHT) / 2
    drawn.append(el("text", "seconds a step", x=middle, y=height - 4, class_="mid soft"))
    said = "; ".join(f"{one.label} {fsum(seconds[one.label].values()):.3g} s" for one in shown)
    return el(
        "svg",
        *drawn,
        class_="chart narrow",
        role="img",
        aria_label=f"Seconds a training step: {said}.",
        viewBox=f"0 0 {WIDTH} {height}",
    )


def _budget_table(quantities: Sequence[Quantity], labels: Sequence[str]) -> Html:
    names = [f"{one.label} ({one.unit})" if one.unit else one.label for one in quantities]
    means = [dict(one.means) for one in quantities]
    rows: list[list[str]] = [
        [label, *(f"{own[label]:,.0f}" if label in own else "–" for own in means)]
        for label in labels
    ]
    rows.append(
        ["largest mean over smallest", *(spread_text(one.spread) or "–" for one in quantities)]
    )
    caption = "Consumed a trial, mean over the trials that finished"
    return table(caption, ["condition", *names], rows, numeric=range(1, len(names) + 1))
