"""Data of the budget figure: what each trial consumed, by condition."""

from collections.abc import Sequence
from statistics import fmean

from rltune.analysis.tables import TrialRow
from rltune.report.figures.notes import head_of, n_text, updates_of
from rltune.report.figures.records import Budget, LeftOut, Quantity, Use
from rltune.report.figures.source import Tables

BUDGET = "budget"
_QUANTITIES = (  # column of `trials`, name, unit
    ("rollouts", "rollouts", ""),
    ("tokens", "tokens", ""),
    ("policy_updates", "policy updates", ""),
    ("wall_s", "wall time", "s"),
)
_EQUAL = 1.0 + 1e-9  # but for rounding


def budget_data(tables: Tables) -> Budget | LeftOut:
    """Return rollouts, tokens, policy updates and wall time of every trial that has begun."""
    quantities = tuple(one for of in _QUANTITIES if (one := _quantity(tables.trials, *of)).uses)
    if not quantities:
        return LeftOut(BUDGET, "no trial has consumed anything yet")
    uses = [use for one in quantities for use in one.uses]
    counts = [sum(row.condition == c for row in tables.trials if row.final is not None)
              for c in dict.fromkeys(row.condition for row in tables.trials)]  # fmt: skip
    caption = f"Points: trials. Bar: mean of those that finished, {n_text(counts)}"
    if any(not use.is_finished for use in uses):
        caption += "; open: not finished, so far"
    caption += ". Ratio: largest mean over smallest."
    alt = "Consumed by condition. " + " ".join(_alt(one) for one in quantities)
    return Budget(head_of(tables, BUDGET, caption=caption, alt=alt), quantities)


def _quantity(trials: Sequence[TrialRow], column: str, label: str, unit: str) -> Quantity:
    uses = tuple(
        Use(row.condition, row.trial_id, row.seed, float(value), row.final is not None)
        for row in trials
        if (value := _consumed(row, column)) is not None
    )
    finished: dict[str, list[float]] = {}
    for use in uses:
        if use.is_finished:
            finished.setdefault(use.condition, []).append(use.value)
    means = tuple((condition, fmean(values)) for condition, values in finished.items())
    return Quantity(column, label, unit, uses, means, _spread([mean for _, mean in means]))


def _consumed(row: TrialRow, column: str) -> float | None:
    value: float | None = updates_of(row) if column == "policy_updates" else getattr(row, column)
    return value


def _spread(means: Sequence[float]) -> float | None:
    if len(means) < 2 or min(means) <= 0.0:
        return None
    return max(means) / min(means)


def spread_text(spread: float | None) -> str:
    """Return how far the conditions are apart, for readers; empty where that is unknown."""
    if spread is None:
        return ""
    return "equal" if spread < _EQUAL else f"ratio {spread:.2f}"


def _alt(one: Quantity) -> str:
    unit = f" {one.unit}" if one.unit else ""
    means = "; ".join(f"{condition} {mean:,.4g}{unit}" for condition, mean in one.means)
    return f"{one.label.capitalize()}, mean: {means or 'none finished'}."
