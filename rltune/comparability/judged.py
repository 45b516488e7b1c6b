"""The share of questions that a judge answered, per condition."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rltune.comparability.findings import Finding, warning
from rltune.comparability.records import TrialRecord

LEAST_SHARE = 0.95
"""Share of answers below which the audit warns."""

_NAMED = 3  # trials, the worst first


@dataclass(frozen=True, slots=True)
class Judged:
    """Episodes that a judge was asked about in training, and those that it judged."""

    asked: int
    answered: int

    @property
    def share(self) -> float:
        """Return answered / asked."""
        return self.answered / self.asked


def judged_in(rows: Iterable[Mapping[str, Any]]) -> Judged:
    """Return the sums over lines of metrics; (0, 0) where nobody was asked."""
    counts = [
        (row["adca/asked_count"], row["adca/answered_count"])
        for row in rows
        if row.get("adca/asked_count") and "adca/answered_count" in row
    ]
    return Judged(int(sum(asked for asked, _ in counts)), int(sum(got for _, got in counts)))


def judged_by_condition(
    trials: Iterable[tuple[str, Judged]],
) -> dict[str, Judged]:
    """Return condition -> the sums over its trials; only conditions that asked a judge."""
    found: dict[str, Judged] = {}
    for condition, own in trials:
        if own.asked:
            before = found.get(condition, Judged(0, 0))
            total = Judged(before.asked + own.asked, before.answered + own.answered)
            found[condition] = total
    return found


def judged_line(shares: Mapping[str, Judged]) -> str:
    """Return the sentence that says how much was judged; empty when nobody was asked."""
    if not shares:
        return ""
    each = ", ".join(f"{name} {own.share:.1%} of {own.asked:,}" for name, own in shares.items())
    return f"Episodes judged, of those asked about: {each}."


def unjudged_line(trials: Iterable[tuple[str, Judged]]) -> str:
    """Return the sentence that names the trials of which a judge left much unjudged."""
    low = [(name, own) for name, own in trials if own.asked and own.share < LEAST_SHARE]
    low.sort(key=lambda one: one[1].share)
    named = [f"{name}: {own.answered:,} of {own.asked:,}" for name, own in low[:_NAMED]]
    if more := len(low) - len(named):
        named.append(f"{more} more")
    return f"Trials judged below {LEAST_SHARE:.0%}: {'; '.join(named)}." if named else ""


def judged_findings(records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield A3: trials of which a judge left much unjudged."""
    found = [(record.spec, judged_in(record.metrics)) for record in records]
    shares = judged_by_condition((spec.condition, own) for spec, own in found)
    if not shares:
        return
    named = unjudged_line((f"{spec.condition}, seed {spec.seed}", own) for spec, own in found)
    if not named:
        return
    message = " ".join(filter(None, (judged_line(shares), named)))
    message += " The rest keep their outcome: they had less attribution than planned."
    remedy = "See adca/judge_*_rate and trial.log for why; raise the judge's limits and run again."
    yield warning("A3.judged", message, remedy)
