"""Data of the comparison: each condition against the control at the last gate, seed by seed."""

from collections.abc import Mapping, Sequence

from rltune.analysis.table_summary import verdicts_of
from rltune.analysis.tables import SummaryRow, TrialRow
from rltune.analysis.verdict_words import Verdict, is_claim
from rltune.comparability.findings import SEEDS_FOR_A_CLAIM
from rltune.report.figures.estimates import BOOTSTRAP_FROM, Estimation, estimation_for
from rltune.report.figures.notes import (
    estimate_text,
    head_of,
    interval_text,
    label_of,
    n_text,
    narrow_notes,
    seed_notes,
)
from rltune.report.figures.records import BOOTSTRAP, MEAN, Comparison, Comparisons, LeftOut, Pair, T
from rltune.report.figures.source import Tables
from rltune.report.render import plural

COMPARISON = "comparison"


def comparison_data(tables: Tables) -> Comparisons | LeftOut:
    """Return the paired differences to the control, their intervals, tests and verdicts."""
    control = {row.seed: row for row in tables.trials if row.is_control and row.final is not None}
    if not control:
        return LeftOut(COMPARISON, "no seed of the control has finished")
    how = estimation_for(tables.trials, tables.about.estimator)
    if tables.trials[0].seeds_until:
        how = Estimation(MEAN, T, how.level)  # the interval of the looks is one of the mean
    finals = {
        (row.condition, row.estimator, row.method): row
        for row in tables.summary
        if row.at == "final"
    }
    others = dict.fromkeys(row.condition for row in tables.trials if not row.is_control)
    verdicts = {one.condition: one for one in verdicts_of(tables.trials)}
    rows = [
        _row(label, _pairs(tables.trials, label, control), finals, how, verdicts[label])
        for label in others
    ]
    if not any(row.final is not None for row in tables.trials if not row.is_control):
        return LeftOut(COMPARISON, "no seed of another condition than the control has finished")
    return _comparisons(tables, next(iter(control.values())), rows, how)


def _pairs(
    trials: Sequence[TrialRow], label: str, control: Mapping[int, TrialRow]
) -> tuple[Pair, ...]:
    pairs = []
    for row in trials:
        theirs = control.get(row.seed)
        if row.condition != label or row.final is None or theirs is None or theirs.final is None:
            continue
        if row.final_step != theirs.final_step:
            continue
        difference = row.final - theirs.final
        pairs.append(
            Pair(row.seed, row.trial_id, theirs.trial_id, row.final, theirs.final, difference)
        )
    return tuple(pairs)


def _row(
    label: str,
    pairs: tuple[Pair, ...],
    finals: Mapping[tuple[str, str, str], SummaryRow],
    how: Estimation,
    verdict: Verdict,
) -> Comparison:
    shown = finals[label, how.estimator, how.method]
    tested, flipped = finals[label, MEAN, T], finals[label, MEAN, BOOTSTRAP]
    is_drawn = len(pairs) >= SEEDS_FOR_A_CLAIM
    return Comparison(
        condition=label,
        pairs=pairs,
        delta=shown.delta_vs_control,
        low=shown.delta_ci_lo if is_drawn else None,
        high=shown.delta_ci_hi if is_drawn else None,
        p=tested.p,
        p_holm=tested.p_holm,
        p_sign_flip=flipped.p_holm,
        seeds_for_80=tested.seeds_for_80,
        verdict=tested.verdict,
        sentence=verdict.sentence,
        looks=verdict.looks,
    )


def _comparisons(
    tables: Tables, control: TrialRow, rows: Sequence[Comparison], how: Estimation
) -> Comparisons:
    counts = [len(row.pairs) for row in rows if row.pairs]
    notes = [*seed_notes(counts), *narrow_notes(how.method, counts, enough=BOOTSTRAP_FROM)]
    label = label_of(control.metric)
    alt = f"Differences in {label} to {control.condition} at the last gate: " + "; ".join(
        f"{row.condition} {_delta(row)}, {row.sentence}" for row in rows
    )
    return Comparisons(
        head=head_of(
            tables,
            COMPARISON,
            notes=notes,
            caption=_caption(rows, how, counts, tables.about.form),
            alt=f"{alt}.",
        ),
        metric=control.metric,
        label=label,
        is_less_better=control.mode == "min",
        control=control.condition,
        estimator=how.estimator,
        method=how.method,
        level=how.level,
        rows=tuple(rows),
    )


def _caption(rows: Sequence[Comparison], how: Estimation, counts: Sequence[int], form: int) -> str:
    caption = "Points: seeds, each paired with its control."
    if max(counts, default=0) > 1:
        filled = ", filled where separable," if any(is_claim(r.verdict) for r in rows) else ""
        caption += f" Diamond: {estimate_text(how.estimator)}{filled} over {n_text(counts)}"
        is_drawn = any(row.low is not None for row in rows)
        kind = interval_text(how.method, how.level)
        if len(rows) > 1 and form >= 3:
            kind = f"unadjusted {kind}"
        if any(row.looks for row in rows):
            kind = f"{how.level:.0%} interval, adjusted for all looks and conditions"
        caption += f", with its {kind}." if is_drawn else "."
    if any(row.looks for row in rows):
        return f"{caption} p: paired t, adjusted likewise."
    if any(row.p_holm is not None for row in rows):
        caption += f" p: paired t, Holm-adjusted over {plural(len(rows), 'condition')}."
    return caption


def _delta(row: Comparison) -> str:
    if row.delta is None:
        return "unknown"
    interval = "" if row.low is None else f" [{row.low:+.3g}, {row.high:+.3g}]"
    return f"{row.delta:+.3g}{interval}"
