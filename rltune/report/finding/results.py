"""What came out: conditions against the control, single seeds, other measures, predictions."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from rltune.analysis.rates import SUCCESS, is_rate_metric
from rltune.analysis.stats import Estimate, as_rate, mean_over_seeds, paired_difference
from rltune.analysis.table_summary import verdicts_of
from rltune.analysis.tables import PairRow, SummaryRow, TrialRow
from rltune.analysis.verdict_words import LEVEL, Verdict, p_text
from rltune.lineage.calibration import parse_delta, told_by_condition
from rltune.maths.significance import mcnemar_p
from rltune.report.figures.notes import label_of
from rltune.report.finding.records import Finding
from rltune.report.finding.words import (
    DASH,
    around,
    bullets,
    code,
    compact,
    compact_around,
    p_cell,
    plain,
    signed,
    table,
    value,
)
from rltune.report.render import plural

HELDOUT = "heldout/"
"""Begins the name of a measure that is taken at gates alone."""


def compared(finding: Finding) -> str:
    """Return the table of all conditions at the last gate."""
    finals = {
        row.condition: row
        for row in finding.summary
        if (row.at, row.estimator, row.method) == ("final", "mean", "t")
    }
    rows = [_compared(finals[label], finding.control) for label in finding.conditions]
    metric = label_of(finding.metric)
    headers = [
        *("condition", "seeds", f"{metric}, last gate", "difference to the control"),
        *("p, unadjusted", "p, Holm", "verdict"),
    ]
    text = (
        "Means over seeds with their 95 % t intervals. A difference is taken seed by seed; p is of "
        "the paired t test, and Holm adjusts it over all conditions of the sweep but the control."
    )
    if finding.page_form >= 3 and len(rows) > 2 and not finding.trials[0].seeds_until:
        text += (
            " Each interval is of one comparison alone: it can exclude zero where the verdict, "
            "which is adjusted, separates nothing."
        )
    return f"{table(headers, rows, numeric=range(1, 6))}\n\n{text}"


def _compared(row: SummaryRow, control: str) -> list[str]:
    is_control = row.condition == control
    return [
        f"{code(row.condition)}{' (control)' if is_control else ''}",
        str(row.n_seeds),
        f"{value(row.value)}{around(row.ci_lo, row.ci_hi)}",
        DASH
        if is_control
        else f"{signed(row.delta_vs_control)}"
        f"{around(row.delta_ci_lo, row.delta_ci_hi, is_signed=True)}",
        p_cell(row.p),
        p_cell(row.p_holm),
        DASH if is_control else plain(row.verdict or DASH),
    ]


def levels(finding: Finding) -> str:
    """Return the levels to compare with: the start, random play, perfect play."""
    trials = finding.trials
    starts = {row.seed: row.base for row in trials if row.is_control and row.base is not None}
    lines = []
    if starts:
        lines.append(f"before training: {value(fmean(starts.values()))}")
    lines += _level("random play (floor)", [(row.condition, _floor(row)) for row in trials])
    lines += _below_floor(finding)
    ceilings = [(row.condition, value(row.ceiling)) for row in trials if row.ceiling is not None]
    lines += _level("perfect play (ceiling)", ceilings)
    return bullets(lines)


def _level(name: str, of_trials: Sequence[tuple[str, str]]) -> list[str]:
    """Return one line for a level, with the conditions that it belongs to where they differ."""
    conditions: dict[str, dict[str, None]] = {}
    for condition, level in of_trials:
        if level:
            conditions.setdefault(level, {})[code(condition)] = None
    if len(conditions) < 2:
        return [f"{name}: {level}" for level in conditions]
    sides = (f"{level} with {', '.join(names)}" for level, names in conditions.items())
    return [f"{name}: {'; '.join(sides)}"]


def _below_floor(finding: Finding) -> list[str]:
    """Return which conditions end below random play, all of their interval."""
    floors = {row.floor for row in finding.trials if row.floor is not None}
    if len(floors) != 1 or finding.metric != SUCCESS:
        return []
    (floor,) = floors
    return [
        f"{code(row.condition)} ends below random play"
        for row in finding.summary
        if (row.at, row.estimator, row.method) == ("final", "mean", "t")
        and row.ci_hi is not None
        and row.ci_hi < floor
    ]


def _floor(row: TrialRow) -> str:
    if row.floor is None:
        return ""
    measured = around(row.floor_low, row.floor_high)
    return f"{value(row.floor)}{measured}{', measured' if measured else ''}"


def seeds_alone(finding: Finding) -> str:
    """Return what each seed alone would have said, beside all of them; empty without a pair."""
    ends = {label: _finals(rows) for label, rows in finding.conditions.items()}
    control = ends.get(finding.control, {})
    pairs = {(row.condition, row.seed): row for row in finding.pairs}
    seeds = sorted({row.seed for row in finding.trials})
    others = [one for one in verdicts_of(finding.trials) if one.n]
    if not others or len(seeds) < 2:
        return ""
    rows = [
        [
            code(one.condition),
            *(_alone(ends[one.condition], control, seed, pairs, one) for seed in seeds),
            _together(one),
        ]
        for one in others
    ]
    headers = ["condition", *(f"seed {seed}" for seed in seeds), "all seeds"]
    return f"{table(headers, rows, numeric=range(1, len(headers)))}\n\n{_alone_text(finding)}"


def _finals(rows: Sequence[TrialRow]) -> dict[int, tuple[int, float]]:
    """Return seed -> (last step, final value)."""
    return {row.seed: (row.final_step or 0, row.final) for row in rows if row.final is not None}


def _alone(
    ours: Mapping[int, tuple[int, float]],
    control: Mapping[int, tuple[int, float]],
    seed: int,
    pairs: Mapping[tuple[str, int], PairRow],
    one: Verdict,
) -> str:
    if seed not in ours or seed not in control or ours[seed][0] != control[seed][0]:
        return DASH
    difference = signed(ours[seed][1] - control[seed][1])
    pair = pairs.get((one.condition, seed))
    if pair is None:
        return difference
    p = mcnemar_p(pair.only_condition, pair.only_control)
    text = f"{difference} ({p_text(p)})"
    return f"**{text}**" if p < LEVEL else text


def _together(one: Verdict) -> str:
    ends = one.difference.interval or (None, None)
    p = f"; Holm {p_text(one.p_holm)}" if one.p_holm is not None else ""
    return f"{signed(one.difference.mean)}{around(*ends, is_signed=True)}{p}"


def _alone_text(finding: Finding) -> str:
    if not finding.pairs:
        return "Each seed minus the control's same seed, at the last gate."
    tasks = "the same held-out tasks"
    if finding.page_form >= 3 and len({row.tasks_sha256 for row in finding.trials}) > 1:
        tasks = "the held-out tasks of the same numbers (their records differ: see the evidence)"
    bold = sum(mcnemar_p(row.only_condition, row.only_control) < LEVEL for row in finding.pairs)
    return (
        f"Each seed minus the control's same seed, on {tasks}, with the p of the "
        "exact McNemar test over those tasks: what a study of this one seed would report. It tells "
        "two trained policies apart, not two settings; another seed is another policy. In bold: "
        f"p < {LEVEL}, unadjusted, {bold} of {plural(len(finding.pairs), 'pair')}."
    )


def measured(finding: Finding) -> str:
    """Return the other measures at the last gate; empty where none was asked for."""
    parts = [_measure(finding, metric) for metric in finding.metrics]
    if not parts:
        return ""
    text = (
        f"Of a seed: {_over_steps(finding.metrics)}. Of a condition: the mean over seeds with its "
        "95 % t interval; differences to the control are taken seed by seed. These are descriptions"
        ": nothing here was tested or adjusted."
    )
    return "\n\n".join([*parts, text])


def _over_steps(metrics: Sequence[str]) -> str:
    """Return what one seed's value is: a gate measures once, training at every step."""
    at_gates = [metric for metric in metrics if metric.startswith(HELDOUT)]
    if len(at_gates) == len(metrics):
        return "the value at the last gate"
    text = "the mean over the training steps since the last gate but one"
    return f"{text} (`{HELDOUT}` measures: the value at the last gate)" if at_gates else text


def _measure(finding: Finding, metric: str) -> str:
    last: dict[str, dict[int, float]] = {}
    for row in finding.measures:  # in the order of the gates, so that the last one stays
        if row.metric == metric:
            last.setdefault(row.condition, {})[row.seed] = row.value
    control = last.get(finding.control, {})
    rows = []
    for label in finding.conditions:
        own = last.get(label, {})
        mean = mean_over_seeds(list(own.values()))
        mean = as_rate(mean) if is_rate_metric(metric) else mean
        against = paired_difference(own, control)
        is_shown = label != finding.control and against.n > 0
        rows.append(
            [
                code(label),
                str(mean.n),
                _estimate(mean),
                _estimate(against, is_signed=True) if is_shown else DASH,
            ]
        )
    headers = ["condition", "seeds", code(metric), "difference to the control"]
    return table(headers, rows, numeric=range(1, 4))


def _estimate(one: Estimate, *, is_signed: bool = False) -> str:
    if not one.n:
        return DASH
    mean = compact(one.mean, is_signed=is_signed)
    return f"{mean}{compact_around(one.interval, is_signed=is_signed)}"


def predicted(finding: Finding) -> str:
    """Return each prediction of the sweep file beside what was measured."""
    told = told_by_condition(one.spec for one in finding.recorded)
    if not told:
        return "The sweep file predicts nothing."
    rows = []
    for one in verdicts_of(finding.trials):
        if text := told.get(one.condition):
            rows.append(_prediction(one, text, form=finding.page_form))
    headers = ["condition", "predicted", "measured", "sign", "inside the interval"]
    text = (
        "Predictions stand in the sweep file (`axis.expect`), which the run froze before its first "
        "trial. The interval is that of the measured difference."
    )
    if finding.page_form >= 3:
        text += " A sign is open where the verdict claims no difference."
    return f"{table(headers, rows, numeric=(2,))}\n\n{text}"


def _prediction(one: Verdict, text: str, *, form: int) -> list[str]:
    expected, difference = parse_delta(text), one.difference
    sign = inside = DASH
    if expected is not None and difference.n:
        sign = _sign(expected, one, form=form)
    if expected is not None and difference.interval is not None:
        inside = "yes" if difference.interval.low <= expected <= difference.interval.high else "no"
    ends = difference.interval or (None, None)
    measured_text = (
        f"{signed(difference.mean)}{around(*ends, is_signed=True)}" if difference.n else DASH
    )
    return [code(one.condition), plain(text), measured_text, sign, inside]


def _sign(expected: float, one: Verdict, *, form: int) -> str:
    """Return whether the sign was right, which no verdict but a claim tells; zero has none."""
    if expected == 0.0:
        return "no effect predicted" if form < 3 else "zero predicted"
    if form >= 3 and not one.is_claim:
        return "open"
    return "right" if expected * one.difference.mean > 0.0 else "wrong"
