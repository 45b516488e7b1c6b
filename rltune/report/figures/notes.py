"""The sentences on a figure: what stands against its sweep, how many seeds there are."""

from collections.abc import Iterable, Sequence

from rltune.analysis.rates import RETRIEVAL, SUCCESS
from rltune.analysis.tables import TrialRow
from rltune.comparability.findings import SEEDS_FOR_A_CLAIM
from rltune.report.figures.records import BOOTSTRAP, IQM, Condition, Head, Mean
from rltune.report.figures.source import About, Tables
from rltune.types import TrialStatus

MOST = 3  # of the audit's warnings, and of the trials that ended badly, on one figure
BAD_ENDS = (TrialStatus.FAILED, TrialStatus.DIVERGED)
"""How a trial ends that has no result of its own fault."""

_LABELS = {
    SUCCESS: "held-out success",
    "heldout/em": "held-out exact match",
    "heldout/reward_mean": "held-out mean reward",
    RETRIEVAL: "retrieval accuracy",
    "collapse/reasoning_entropy": "reasoning entropy, nats",
}


def label_of(metric: str) -> str:
    """Return the name of a measure for readers, with its unit."""
    return _LABELS.get(metric, metric)


def conditions_of(trials: Sequence[TrialRow]) -> tuple[Condition, ...]:
    """Return the conditions of the sweep in the order of the plan."""
    groups: dict[str, list[TrialRow]] = {}
    for row in trials:
        groups.setdefault(row.condition, []).append(row)
    return tuple(
        Condition(
            label,
            label.partition("=")[2] or label,
            group[0].is_control,
            len(group),
            sum(row.final is not None for row in group),
        )
        for label, group in groups.items()
    )


def head_of(
    tables: Tables, figure: str, *, caption: str, alt: str, notes: Iterable[str] = ()
) -> Head:
    """Return what a figure says of its sweep.

    Args:
        tables: The export.
        figure: Name of the figure.
        caption: What its marks mean.
        alt: What it shows, in words; the notes are added.
        notes: Its own, which follow those of the sweep.

    """
    first = tables.trials[0]
    said = (*verdict_notes(tables.about), *bad_end_notes(tables.trials), *notes)
    said = (*said, *warning_notes(tables.about))
    return Head(
        figure,
        first.sweep,
        first.run,
        tables.about.title,
        first.axis,
        first.mark,
        said,
        caption,
        " ".join((*said, alt)),
        conditions_of(tables.trials),
    )


def verdict_notes(about: About) -> list[str]:
    """Return what the audit says against the sweep."""
    found = []
    if about.failed_rules:
        rules = ", ".join(about.failed_rules)
        found.append(f"AUDIT FAILED ({rules}): this figure does not prove a comparison.")
    if about.confounded:
        found.append("CONFOUNDED: more than the axis differs, so nothing follows about it.")
    if about.finished < about.planned:
        found.append(f"INCOMPLETE: {about.finished} of {about.planned} trials have a result.")
    return found


def bad_end_notes(trials: Sequence[TrialRow]) -> list[str]:
    """Return which trials failed or diverged; of many the first ones, and how many more."""
    found = []
    for status in BAD_ENDS:
        bad = [f"{row.condition}@{row.seed}" for row in trials if row.status == status]
        more = f" and {len(bad) - MOST} more" if len(bad) > MOST else ""
        if bad:
            found.append(f"{status.value.capitalize()}: {', '.join(bad[:MOST])}{more}.")
    return found


def warning_notes(about: About) -> list[str]:
    """Return the audit's warnings, of many the first ones; then hidden second axes, all."""
    rest = len(about.warnings) - MOST
    found = list(about.warnings)
    if rest > 0:
        more = f"{rest} more warning{'' if rest == 1 else 's'} of the audit: see manifest.json."
        found = [*found[:MOST], more]
    return [*found, *about.open_warnings]


def seed_notes(counts: Sequence[int]) -> list[str]:
    """Return what few seeds forbid.

    Args:
        counts: Seeds that each condition has.

    """
    fewest = min(counts, default=SEEDS_FOR_A_CLAIM)
    if fewest >= SEEDS_FOR_A_CLAIM:
        return []
    said = f"{fewest} seed{'' if fewest == 1 else 's'}"
    if max(counts) >= SEEDS_FOR_A_CLAIM:
        return [f"Only {said} in a condition: it allows no claim and has no interval."]
    return [f"{said}: no claim can be made, and no interval is drawn."]


def partial_notes(means: Iterable[Mean]) -> list[str]:
    """Return that some estimates are over fewer seeds than began."""
    if not any(mean.is_partial for mean in means):
        return []
    return ["Dotted, open: means over fewer seeds than began, so a selection."]


def n_text(counts: Sequence[int]) -> str:
    """Return `3 seeds`, or `2 to 3 seeds` where conditions differ."""
    low, high = min(counts, default=0), max(counts, default=0)
    if low != high:
        return f"{low} to {high} seeds"
    return f"{low} seed{'' if low == 1 else 's'}"


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
