"""What stands against the sweep, the worst first, one line each."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from rltune.analysis.trial_states import TrialState
from rltune.comparability.judged import judged_by_condition, judged_line
from rltune.report.html.gather import Evidence

MOST_WARNINGS = 40
"""Warnings shown; more are counted."""


class Warned(NamedTuple):
    """One warning: a word for its kind, what is wrong, and `warn` or `bad`."""

    word: str
    text: str
    kind: str = "warn"


def warnings_of(evidence: Evidence) -> dict[str, Any]:
    """Return the warnings that are shown, and how many are not."""
    lines = list(_warnings(evidence))
    return {"lines": lines[:MOST_WARNINGS], "left": max(0, len(lines) - MOST_WARNINGS)}


def _warnings(evidence: Evidence) -> Iterator[Warned]:
    about, trials = evidence.tables.about, evidence.state.trials
    if about.failed_rules:
        rules = ", ".join(about.failed_rules)
        yield Warned("audit failed", f"{rules} found errors; see the rules.", "bad")
    if about.confounded:
        why = f"It ran although more than the axis differs: {about.confounded}"
        yield Warned("confounded", why, "bad")
    yield from (_bad_end(trial) for trial in trials if trial.status.is_failure)
    if about.finished < about.planned:
        yield Warned("incomplete", f"{about.finished} of {about.planned} trials have a result.")
    for trial in trials:
        yield from _of_trial(trial)
    yield from (Warned("hidden axis", text) for text in about.open_warnings)
    for item in evidence.audit.report.warnings:
        if item.rule != "A4":  # which says again which trials did not end
            yield Warned("audit", str(item))
    if judged := judged_line(judged_by_condition((one.condition, one.judged) for one in trials)):
        yield Warned("judge", judged)
    yield from (Warned("unreadable", str(problem)) for problem in evidence.read.problems)


def _bad_end(trial: TrialState) -> Warned:
    where = "" if trial.step is None else f" at step {trial.step} of {trial.steps}"
    why = trial.reason or "no reason was recorded"
    return Warned(trial.status.value, f"{trial.name}{where}: {why}", "bad")


def _of_trial(trial: TrialState) -> Iterator[Warned]:
    """Yield why a trial that did not fail ended early, and what its card warns of."""
    if not trial.status.is_failure and trial.reason:
        yield Warned(trial.status.value, f"{trial.name}: {trial.reason}")
    yield from (Warned("trial", f"{trial.name}: {text}") for text in trial.warnings)
