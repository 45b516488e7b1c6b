"""The `summary` table, from the rows of `trials` and `gates` alone: whoever has those can redo it.

Of every measure and condition: the mean with its t interval, the mean with its bootstrap interval,
the interquartile mean with its bootstrap interval; each beside its difference to the control, seed
by seed. Tests are of the last gate of the sweep's metric alone, which nothing chose.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from rltune.analysis.ends import End, pairs_of
from rltune.analysis.power import closing_power
from rltune.analysis.rates import is_rate_metric, resolution_of
from rltune.analysis.stats import mean_over_seeds
from rltune.analysis.tables import GateRow, SummaryRow, TrialRow, against, ends_of, same_runs_of
from rltune.analysis.verdict import adjusted, verdicts
from rltune.analysis.verdict_words import Verdict
from rltune.maths.interval import Interval
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
from rltune.maths.significance import sign_flip_p

CONFIDENCE = 0.95
_ENDS = ("selected", "final")  # what a trial came to, wherever it ended
BySeed = Mapping[int, float]

_STATISTICS: dict[str, Statistic] = {"mean": row_mean, "iqm": row_iqm}


@dataclass(frozen=True, slots=True)
class _Cell:
    """One measure at one point of training, in all conditions."""

    metric: str  # its name
    at: str  # `base`, `selected`, `final`, or `gate`
    step: int | None  # of a gate
    values: Mapping[str, BySeed]  # condition -> seed -> value
    tasks: Mapping[str, int]  # condition -> fewest tasks that a seed's value is over


@dataclass(frozen=True, slots=True)
class _Planned:
    """One condition of the plan."""

    condition: str  # its label
    is_control: bool  # whether the others are compared with it
    seeds: int  # planned
    is_complete: bool  # whether all its trials have a result at their last planned step
    paired: frozenset[int]  # seeds that ended at the same step as the control's


def summary_rows(trials: Sequence[TrialRow], gates: Sequence[GateRow]) -> list[SummaryRow]:
    """Return one row per condition, measure, point of training and estimator; the control first."""
    planned = _planned(trials)
    of_condition = {one.condition: one for one in verdicts_of(trials)}
    rows: list[SummaryRow] = []
    for cell in (*_ends(trials), *_curves(gates)):
        rows += _with_verdicts(_cell_rows(cell, planned, trials[0]), of_condition)
    return rows


def verdicts_of(trials: Sequence[TrialRow]) -> tuple[Verdict, ...]:
    """Return the verdict about each condition but the control."""
    if not trials:
        return ()
    return verdicts(
        ends_of(trials),
        resolution=resolution_of(trials[0].metric, tasks=trials[0].heldout_tasks),
        against=against(trials[0].mark),
        same_runs=same_runs_of(trials),
    )


def power_of(trials: Sequence[TrialRow], one_runs: Iterable[Sequence[str]]) -> str:
    """Return what the seeds could show; empty where every condition is decided.

    `one_runs` are the pairs of conditions that A7 found to be one run.
    """
    if not trials:
        return ""
    return closing_power(
        ends_of(trials),
        verdicts_of(trials),
        one_runs=one_runs,
        resolution=resolution_of(trials[0].metric, tasks=trials[0].heldout_tasks),
    )


def _planned(trials: Sequence[TrialRow]) -> list[_Planned]:
    groups: dict[str, list[End]] = {}
    for end in sorted(ends_of(trials), key=lambda end: not end.is_control):
        groups.setdefault(end.condition, []).append(end)
    control = next((group for group in groups.values() if group[0].is_control), [])
    return [
        _Planned(
            name,
            is_control=group[0].is_control,
            seeds=len(group),
            is_complete=all(end.value is not None and not end.is_short for end in group),
            paired=frozenset(pairs_of(group, control)),
        )
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
        tasks: dict[str, int] = {}
        for row in trials:
            n = _tasks_of(row, at)
            tasks[row.condition] = min(tasks.get(row.condition, n), n)
        yield _Cell(trials[0].metric, at, None, values, tasks)


def _tasks_of(row: TrialRow, at: str) -> int:
    """Return the tasks that a trial's value is over; those of the split where it has none."""
    scored = {"selected": row.selected_tasks, "final": row.final_tasks}.get(at)
    is_known = scored is not None and getattr(row, at) is not None
    return scored if scored is not None and is_known else row.heldout_tasks


def _curves(gates: Sequence[GateRow]) -> Iterator[_Cell]:
    """Yield every measure at every gate."""
    at_gate: dict[tuple[str, int], list[GateRow]] = {}
    for gate in gates:
        if gate.value is not None:
            at_gate.setdefault((gate.metric, gate.step), []).append(gate)
    metrics = list(dict.fromkeys(metric for metric, _ in at_gate))
    for metric, step in sorted(at_gate, key=lambda key: (metrics.index(key[0]), key[1])):
        values: dict[str, dict[int, float]] = {}
        tasks: dict[str, int] = {}
        for gate in at_gate[metric, step]:
            if gate.value is not None:
                values.setdefault(gate.condition, {})[gate.seed] = gate.value
                tasks[gate.condition] = min(tasks.get(gate.condition, gate.n_tasks), gate.n_tasks)
        yield _Cell(metric, "gate", step, values, tasks)


def _cell_rows(cell: _Cell, planned: Sequence[_Planned], of: TrialRow) -> list[SummaryRow]:
    control = next((cell.values.get(p.condition, {}) for p in planned if p.is_control), {})
    is_control_whole = all(p.is_complete for p in planned if p.is_control)
    rows: list[SummaryRow] = []
    for one in planned:
        is_complete = one.is_complete and is_control_whole
        for estimator, method in (("mean", "t"), ("mean", "bootstrap"), ("iqm", "bootstrap")):
            row = _estimate(cell, one, of, estimator, method, is_complete=is_complete)
            rows.append(row if one.is_control else _against(row, cell, one, control, of))
    return rows


def _estimate(
    cell: _Cell, one: _Planned, of: TrialRow, estimator: str, method: str, *, is_complete: bool
) -> SummaryRow:
    values = list(cell.values.get(one.condition, {}).values())
    value, interval = estimate_of(
        values,
        estimator=estimator,
        method=method,
        resolution=resolution_of(cell.metric, tasks=of.heldout_tasks),
        is_rate=is_rate_metric(cell.metric),
    )
    is_drawn = method == "bootstrap" and interval is not None
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
        ci_lo=interval.low if interval else None,
        ci_hi=interval.high if interval else None,
        ci_level=CONFIDENCE,
        method=method,
        reps=REPS if is_drawn else None,
        rng_seed=RNG_SEED if is_drawn else None,
        is_complete=is_complete,
        mark=of.mark,
    )


def estimate_of(
    values: Sequence[float],
    *,
    estimator: str,
    method: str,
    resolution: float,
    is_rate: bool = False,
) -> tuple[float | None, Interval | None]:
    """Return an estimate over seeds and its interval; None where the values are too few.

    Args:
        values: One per seed.
        estimator: `mean` or `iqm`.
        method: Of the interval: `t` (of the mean alone) or `bootstrap`.
        resolution: Smallest step of the measure; 0 if not known.
        is_rate: Whether the interval is cut to [0, 1].

    """
    if not values:
        return None, None
    estimate = mean_over_seeds(values, confidence=CONFIDENCE, resolution=resolution)
    value = iqm(values) if estimator == "iqm" else estimate.mean
    interval = estimate.interval
    if method == "bootstrap":
        interval = _bootstrap(tuple(values), estimator)
    return value, interval.clipped() if interval is not None and is_rate else interval


@lru_cache(maxsize=4096)  # of one sweep, tables, page and figures ask for the same intervals
def _bootstrap(values: tuple[float, ...], estimator: str) -> Interval | None:
    return bootstrap_interval([values], _STATISTICS[estimator], confidence=CONFIDENCE)


def _against(
    row: SummaryRow, cell: _Cell, one: _Planned, control: BySeed, of: TrialRow
) -> SummaryRow:
    """Return the row with the difference to the control: of the seeds that both have.

    At the end of training these are the seeds that both ended at the same step.
    """
    treated = cell.values.get(one.condition, {})
    shared = sorted(treated.keys() & control.keys())
    if cell.at in _ENDS:
        shared = [seed for seed in shared if seed in one.paired]
        treated, control = ({seed: side[seed] for seed in shared} for side in (treated, control))
    differences = [treated[seed] - control[seed] for seed in shared]
    delta, interval = estimate_of(
        differences,
        estimator=row.estimator,
        method=row.method,
        resolution=resolution_of(cell.metric, tasks=of.heldout_tasks),
    )
    ours, theirs = list(treated.values()), list(control.values())
    if of.mode == "min":
        ours, theirs = theirs, ours
    row = replace(
        row,
        delta_vs_control=delta,
        delta_n=len(shared),
        delta_ci_lo=interval.low if interval else None,
        delta_ci_hi=interval.high if interval else None,
        p_improve=probability_of_improvement(ours, theirs) if ours and theirs else None,
    )
    is_tested = cell.at == "final" and row.estimator == "mean" and row.method == "bootstrap"
    if not is_tested or len(shared) < 2:
        return row
    return replace(row, test="sign flip", p=sign_flip_p(differences))


def _with_verdicts(
    rows: Sequence[SummaryRow], of_condition: Mapping[str, Verdict]
) -> Iterator[SummaryRow]:
    """Yield the rows of the last gate with the verdict, and with every test's adjusted p."""
    flips = {row.condition: row.p for row in rows if row.test == "sign flip"}
    known = {label: p for label, p in flips.items() if p is not None}
    flips_holm = adjusted(list(of_condition.values()), known)
    for row in rows:
        verdict = of_condition.get(row.condition)
        if row.at != "final" or verdict is None:
            yield row
        elif row.method == "t":
            yield replace(
                _of_looks(row, verdict),
                test="paired t" if verdict.p is not None else "",
                p=verdict.p,
                p_holm=verdict.p_holm,
                seeds_for_80=verdict.needed,
                verdict=verdict.words,
            )
        elif row.test == "sign flip":
            yield replace(row, p_holm=flips_holm.get(row.condition))
        else:
            yield row


def _of_looks(row: SummaryRow, verdict: Verdict) -> SummaryRow:
    """Return the row with the last look's difference, its interval adjusted for all looks."""
    if not verdict.looks:
        return row
    interval = verdict.difference.interval
    return replace(
        row,
        delta_vs_control=verdict.difference.mean,
        delta_n=verdict.n,
        delta_ci_lo=interval.low if interval else None,
        delta_ci_hi=interval.high if interval else None,
    )
