"""The `summary` table, from the rows of `trials` and `gates` alone: whoever has those can redo it.

Of every measure and condition: the mean with its t interval, the mean with its bootstrap interval,
the interquartile mean with its bootstrap interval; each beside its difference to the control, seed
by seed. Tests are of the last gate of the sweep's metric alone, which nothing chose.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import stdev

from rltune.maths.difference import Span
from rltune.maths.power import seeds_for_power
from rltune.maths.resample import (
    REPS,
    RNG_SEED,
    Statistic,
    bootstrap_interval,
    iqm,
    probability_of_improvement,
    row_iqm,
    row_mean,
)
from rltune.maths.significance import holm, paired_t_p, sign_flip_p
from rltune.report.stats import mean_over_seeds
from rltune.report.summary import RATES
from rltune.report.tables import INCOMPLETE, OK, GateRow, SummaryRow, TrialRow
from rltune.spec.findings import SEEDS_FOR_A_CLAIM

LEVEL = 0.95
ABOVE, BELOW, SAME, NO_CLAIM = "above", "below", "not distinguishable", "no claim"
BySeed = Mapping[int, float]

_STATISTICS: dict[str, Statistic] = {"mean": row_mean, "iqm": row_iqm}


@dataclass(frozen=True, slots=True)
class _Cell:
    """One measure at one point of training, in all conditions.

    Attributes:
        metric: Its name.
        at: `base`, `selected`, `final`, or `gate`.
        step: Of a gate.
        values: Condition -> seed -> value.
        tasks: Condition -> most tasks that a value is over.

    """

    metric: str
    at: str
    step: int | None
    values: Mapping[str, BySeed]
    tasks: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Planned:
    """One condition of the plan."""

    condition: str
    is_control: bool
    seeds: int
    is_complete: bool


def summary_rows(trials: Sequence[TrialRow], gates: Sequence[GateRow]) -> list[SummaryRow]:
    """Return one row a condition, measure, point of training and estimator; the control first."""
    planned = _planned(trials)
    rows: list[SummaryRow] = []
    for cell in (*_ends(trials), *_curves(gates)):
        rows += _cell_rows(cell, planned, trials[0])
    return rows


def _planned(trials: Sequence[TrialRow]) -> list[_Planned]:
    groups: dict[str, list[TrialRow]] = {}
    for row in sorted(trials, key=lambda row: not row.is_control):
        groups.setdefault(row.condition, []).append(row)
    return [
        _Planned(name, group[0].is_control, len(group), all(r.final is not None for r in group))
        for name, group in groups.items()
    ]


def _ends(trials: Sequence[TrialRow]) -> Iterator[_Cell]:
    """Yield the sweep's metric before training, as chosen by the gate, and at the end."""
    if not trials:
        return
    for at in ("base", "selected", "final"):
        values: dict[str, dict[int, float]] = {}
        for row in trials:
            value = getattr(row, at)
            if value is not None:
                values.setdefault(row.condition, {})[row.seed] = value
        tasks = {row.condition: row.heldout_tasks for row in trials}
        yield _Cell(trials[0].metric, at, None, values, tasks)


def _curves(gates: Sequence[GateRow]) -> Iterator[_Cell]:
    """Yield every measure at every gate."""
    found: dict[tuple[str, int], list[GateRow]] = {}
    for gate in gates:
        if gate.value is not None:
            found.setdefault((gate.metric, gate.step), []).append(gate)
    metrics = list(dict.fromkeys(metric for metric, _ in found))
    for metric, step in sorted(found, key=lambda key: (metrics.index(key[0]), key[1])):
        values: dict[str, dict[int, float]] = {}
        tasks: dict[str, int] = {}
        for gate in found[metric, step]:
            if gate.value is not None:
                values.setdefault(gate.condition, {})[gate.seed] = gate.value
                tasks[gate.condition] = max(tasks.get(gate.condition, 0), gate.n_tasks)
        yield _Cell(metric, "gate", step, values, tasks)


def _cell_rows(cell: _Cell, planned: Sequence[_Planned], of: TrialRow) -> list[SummaryRow]:
    control = next((cell.values.get(p.condition, {}) for p in planned if p.is_control), {})
    is_control_whole = all(p.is_complete for p in planned if p.is_control)
    rows: list[SummaryRow] = []
    for one in planned:
        is_complete = one.is_complete and is_control_whole
        for estimator, method in (("mean", "t"), ("mean", "bootstrap"), ("iqm", "bootstrap")):
            row = _estimate(cell, one, of, estimator=estimator, method=method)
            row = replace(row, is_complete=is_complete)
            rows.append(row if one.is_control else _against(row, cell, one, control, of))
    return _with_verdicts(_with_holm(rows))


def _estimate(
    cell: _Cell, one: _Planned, of: TrialRow, *, estimator: str, method: str
) -> SummaryRow:
    values = list(cell.values.get(one.condition, {}).values())
    value, span = estimate_of(
        values,
        estimator=estimator,
        method=method,
        resolution=_resolution(cell, of),
        is_rate=cell.metric in RATES,
    )
    is_drawn = method == "bootstrap" and span is not None
    return SummaryRow(
        sweep=of.sweep,
        condition=one.condition,
        is_control=one.is_control,
        metric=cell.metric,
        at=cell.at,
        step=cell.step,
        n_planned=one.seeds,
        n_seeds=len(values),
        n_tasks=cell.tasks.get(one.condition, 0),
        estimator=estimator,
        value=value,
        ci_lo=span.low if span else None,
        ci_hi=span.high if span else None,
        ci_level=LEVEL,
        method=method,
        reps=REPS if is_drawn else None,
        rng_seed=RNG_SEED if is_drawn else None,
        delta_vs_control=None,
        delta_n=None,
        delta_ci_lo=None,
        delta_ci_hi=None,
        test="",
        p=None,
        p_holm=None,
        p_improve=None,
        seeds_for_80=None,
        verdict="",
        is_complete=False,
        mark=of.mark,
    )


def _resolution(cell: _Cell, of: TrialRow) -> float:
    """Return the smallest step of the measure, as the closing table has it."""
    return 1.0 / of.heldout_tasks if cell.metric in RATES else 0.0


def estimate_of(
    values: Sequence[float], *, estimator: str, method: str, resolution: float, is_rate: bool
) -> tuple[float | None, Span | None]:
    """Return an estimate over seeds and its interval; None where the values are too few.

    Args:
        values: One a seed.
        estimator: `mean` or `iqm`.
        method: Of the interval: `t` (of the mean alone) or `bootstrap`.
        resolution: Smallest step of the measure; 0 if not known.
        is_rate: Whether the interval is cut to [0, 1].

    """
    value, span = _point(values, estimator, method, resolution)
    if span is not None and is_rate:
        span = Span(max(0.0, span.low), min(1.0, span.high))
    return value, span


def _point(
    values: Sequence[float], estimator: str, method: str, resolution: float
) -> tuple[float | None, Span | None]:
    """Return an estimate and its interval; None where the values are too few."""
    if not values:
        return None, None
    if method == "t":
        found = mean_over_seeds(values, confidence=LEVEL, resolution=resolution)
        return found.mean, Span(*found.interval) if found.interval else None
    statistic = _STATISTICS[estimator]
    point = mean_over_seeds(values).mean if estimator == "mean" else iqm(values)
    return point, bootstrap_interval([values], statistic, confidence=LEVEL)


def _against(
    row: SummaryRow, cell: _Cell, one: _Planned, control: BySeed, of: TrialRow
) -> SummaryRow:
    """Return the row with the difference to the control: of the seeds that both have."""
    treated = cell.values.get(one.condition, {})
    shared = sorted(treated.keys() & control.keys())
    differences = [treated[seed] - control[seed] for seed in shared]
    resolution = _resolution(cell, of)
    delta, span = _point(differences, row.estimator, row.method, resolution)
    ours, theirs = list(treated.values()), list(control.values())
    if of.mode == "min":
        ours, theirs = theirs, ours
    row = replace(
        row,
        delta_vs_control=delta,
        delta_n=len(shared),
        delta_ci_lo=span.low if span else None,
        delta_ci_hi=span.high if span else None,
        p_improve=probability_of_improvement(ours, theirs) if ours and theirs else None,
    )
    if cell.at != "final" or len(shared) < 2 or row.estimator != "mean":
        return row
    if row.method == "bootstrap":
        return replace(row, test="sign flip", p=sign_flip_p(differences))
    spread = max(stdev(differences), resolution)
    return replace(
        row,
        test="paired t",
        p=paired_t_p(differences, resolution=resolution),
        seeds_for_80=seeds_for_power(delta or 0.0, spread, least=SEEDS_FOR_A_CLAIM),
    )


def _with_holm(rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    """Adjust the p values of each test over the conditions of the sweep."""
    done = list(rows)
    for test in {row.test for row in rows if row.p is not None}:
        places = [i for i, row in enumerate(rows) if row.test == test]
        adjusted = holm([rows[i].p or 0.0 for i in places])
        for i, p in zip(places, adjusted, strict=True):
            done[i] = replace(rows[i], p_holm=p)
    return done


def _with_verdicts(rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    return [
        replace(row, verdict=_verdict(row))
        if (row.at, row.method) == ("final", "t") and not row.is_control
        else row
        for row in rows
    ]


def _verdict(row: SummaryRow) -> str:
    """Return what the last gate allows to say of a condition against the control."""
    is_sound = row.mark in (OK, INCOMPLETE)
    if not is_sound or not row.is_complete or (row.delta_n or 0) < SEEDS_FOR_A_CLAIM:
        return NO_CLAIM
    if row.p_holm is None or row.p_holm >= 1.0 - LEVEL or row.delta_vs_control is None:
        return SAME
    return ABOVE if row.delta_vs_control > 0 else BELOW
