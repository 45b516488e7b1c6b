"""The sentences on a figure: what stands against its sweep, how many seeds there are."""

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from rltune.analysis.rates import RETRIEVAL, SUCCESS
from rltune.analysis.tables import TrialRow
from rltune.comparability.findings import SEEDS_FOR_A_CLAIM
from rltune.gate import set_metric
from rltune.report.figures.records import BOOTSTRAP, IQM, Condition, Head, Mean
from rltune.report.figures.source import FORM, About, Tables, trials_by_condition
from rltune.report.render import plural, quantity
from rltune.types import TrialStatus

MOST = 3  # of the audit's warnings, and of the trials that ended badly, on one figure
LONGEST = 104
"""Characters of a warning of the audit on a figure, about two lines; pages have all of it."""

BAD_ENDS = (TrialStatus.FAILED, TrialStatus.DIVERGED)
"""How a trial ends that has no result of its own fault."""

_LABELS = {
    SUCCESS: "held-out success",
    "heldout/em": "held-out exact match",
    "heldout/reward_mean": "held-out mean reward",
    "heldout/start_kl": "KL to the start, nats a token",
    RETRIEVAL: "retrieval accuracy",
    "collapse/reasoning_entropy": "reasoning entropy, nats",
}
SET_LABELS = {"em": "exact match", "f1": "F1", "success_rate": "success"}
"""Measure of a named evaluation set -> its name for readers."""


def label_of(metric: str) -> str:
    """Return the name of a measure for readers, with its unit."""
    if found := set_metric(metric):
        return f"held-out {SET_LABELS[found.measure]} ({found.name})"
    return _LABELS.get(metric, metric)


def conditions_of(trials: Sequence[TrialRow]) -> tuple[Condition, ...]:
    """Return the conditions of the sweep in the order of the plan."""
    return tuple(
        Condition(
            label,
            label.partition("=")[2] or label,
            group[0].is_control,
            len(group),
            sum(row.final is not None for row in group),
        )
        for label, group in trials_by_condition(trials).items()
    )


def head_of(
    tables: Tables, figure: str, *, caption: str, alt: str, notes: Iterable[str] = ()
) -> Head:
    """Return what a figure says of its sweep.

    `notes` are its own; they follow those of the sweep, and `alt` follows all of them.
    """
    first = tables.trials[0]
    about = tables.about
    warnings = warning_notes(about, tables.trials)
    own = (*verdict_notes(about), *bad_end_notes(tables.trials), *notes, *warnings)
    return Head(
        figure,
        first.sweep,
        first.run,
        tables.about.title,
        first.axis,
        first.mark,
        own,
        caption,
        " ".join((*own, alt)),
        conditions_of(tables.trials),
    )


def verdict_notes(about: About) -> list[str]:
    """Return what the audit says against the sweep."""
    notes = []
    if about.failed_rules:
        rules = ", ".join(about.failed_rules)
        notes.append(f"AUDIT FAILED ({rules}): this figure does not prove a comparison.")
    if about.confounded:
        notes.append("CONFOUNDED: more than the axis differs, so nothing follows about it.")
    if about.finished < about.planned:
        notes.append(f"INCOMPLETE: {about.finished} of {about.planned} trials have a result.")
    return notes


def bad_end_notes(trials: Sequence[TrialRow]) -> list[str]:
    """Return which trials failed or diverged; of many the first ones, and how many more."""
    notes = []
    for status in BAD_ENDS:
        bad = [f"{row.condition}@{row.seed}" for row in trials if row.status == status]
        more = f" and {len(bad) - MOST} more" if len(bad) > MOST else ""
        if bad:
            notes.append(f"{status.value.capitalize()}: {', '.join(bad[:MOST])}{more}.")
    return notes


def warning_notes(about: About, trials: Sequence[TrialRow] = ()) -> list[str]:
    """Return the audit's warnings in short, of many the first ones; then hidden axes, all."""
    notes = [updates_note(trials)] if about.has_other_updates else []
    notes += [in_short(text, trials, form=about.form) for text in about.warnings]
    rest = len(notes) - MOST
    if rest > 0:
        more = f"{plural(rest, 'more warning')} of the audit: see manifest.json."
        notes = [*notes[:MOST], more]
    return [*notes, *about.open_warnings]


def updates_note(trials: Sequence[TrialRow]) -> str:
    """Return A3 in one sentence: between which conditions the policy updates of a trial lie.

    A mean is over the finished trials of a condition.
    """
    own: dict[str, list[float]] = {}
    for row in trials:
        if row.final is not None and (count := updates_of(row)) is not None:
            own.setdefault(row.condition, []).append(count)
    means = sorted((fmean(counts), label) for label, counts in own.items())
    if len(means) < 2:
        return "A3 warning: policy updates differ by condition."
    low, high = (f"{quantity(mean)} ({label})" for mean, label in (means[0], means[-1]))
    return f"A3 warning: policy updates lie between {low} and {high}."


def updates_of(row: TrialRow) -> float | None:
    """Return the policy updates of a trial; without a count of these, its optimiser steps."""
    return row.optimizer_steps if row.policy_updates is None else row.policy_updates


_CLAUSE = re.compile(r"[A-Z]\d+ warning: .+?(?=: | \()")
_DIGEST = re.compile(r"'?\b([0-9a-f]{12})[0-9a-f]{28,52}\b'?")


def in_short(warning: str, trials: Sequence[TrialRow], *, form: int = FORM) -> str:
    """Return a warning by `by_condition`; of a long one its first clause, or as many words."""
    text = by_condition(warning, trials)
    if len(text) <= LONGEST:
        return text
    clause = _CLAUSE.match(text) if form >= 3 else None
    if clause and len(clause[0]) < LONGEST:
        return f"{clause[0]}."
    return f"{text[: LONGEST - 3].rpartition(' ')[0]} ..."


def by_condition(warning: str, trials: Sequence[TrialRow]) -> str:
    """Return a warning with twelve digits of a digest, and conditions for all their trials."""
    text = _DIGEST.sub(r"\1", warning)
    if not trials:
        return text
    rows = {row.trial_id: row for row in trials}
    name = "|".join(re.escape(one) for one in sorted(rows, key=len, reverse=True))
    several = rf"(?P<ids>(?:{name})(?:, (?:{name}))*)(?: and (?P<more>\d+) more)?"
    return re.sub(several, lambda found: _named(found["ids"], found["more"], rows), text)


def _named(ids: str, more: str | None, rows: Mapping[str, TrialRow]) -> str:
    """Return a list of trials as their conditions where it is all of these, else as `label@seed`.

    `more` is how many trials of the list are not in `ids`.
    """
    listed = [rows[one] for one in ids.split(", ")]
    labels = dict.fromkeys(row.condition for row in listed)
    count = len(listed) + int(more or 0)
    if count == sum(row.condition in labels for row in rows.values()):
        return ", ".join(labels)
    names = ", ".join(f"{row.condition}@{row.seed}" for row in listed)
    return f"{names} and {more} more" if more else names


def seed_notes(counts: Sequence[int]) -> list[str]:
    """Return what few seeds forbid."""
    fewest = min(counts, default=SEEDS_FOR_A_CLAIM)
    if fewest >= SEEDS_FOR_A_CLAIM:
        return []
    seeds = plural(fewest, "seed")
    if max(counts) >= SEEDS_FOR_A_CLAIM:
        return [f"Only {seeds} in a condition: it allows no claim and has no interval."]
    return [f"{seeds}: no claim can be made, and no interval is drawn."]


def partial_notes(means: Iterable[Mean]) -> list[str]:
    """Return that some estimates are over fewer seeds than began."""
    if not any(mean.is_partial for mean in means):
        return []
    return ["Dotted, open: means over fewer seeds than began, so a selection."]


def n_text(counts: Sequence[int]) -> str:
    """Return `3 seeds`, or `2 to 3 seeds` where conditions differ."""
    low, high = min(counts, default=0), max(counts, default=0)
    return plural(low, "seed") if low == high else f"{low} to {high} seeds"


def estimate_text(estimator: str) -> str:
    """Return the name of an estimator for readers."""
    return "interquartile mean" if estimator == IQM else "mean"


def interval_text(method: str, level: float) -> str:
    """Return the name of an interval for readers."""
    name = "bootstrap" if method == BOOTSTRAP else "t"
    return f"{100 * level:g} % {name} interval"


def narrow_notes(method: str, counts: Sequence[int], *, enough: int) -> list[str]:
    """Return that a bootstrap over few seeds is too narrow, where one is drawn."""
    fewest = min(counts, default=0)
    if method != BOOTSTRAP or not SEEDS_FOR_A_CLAIM <= fewest < enough:
        return []
    return [f"With {fewest} seeds a bootstrap interval is too narrow: docs/export.md."]
