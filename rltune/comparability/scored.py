"""The held-out tasks that a gate scored, of those it played; the others had a fault."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rltune.comparability.records import TrialRecord
from rltune_envs.faults import FAULT_SHARE, too_many_faults

_MOST_NAMED = 4


class Scored(NamedTuple):
    """Tasks that count, and tasks that were played."""

    n: int
    asked: int

    @property
    def is_lost(self) -> bool:
        """Whether the rate over those that count proves nothing."""
        return too_many_faults(self.asked - self.n, self.asked)

    @property
    def words(self) -> str:
        """Return `14 of 32`; empty where all were scored."""
        return "" if self.n == self.asked else f"{self.n} of {self.asked}"


def is_same_mean(a: float, b: float) -> bool:
    """Tell whether two numbers are one mean: a trial adds its tasks in another order."""
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)


def scored_in(gate: Mapping[str, Any]) -> Scored:
    """Return the counts of a line of heldout.jsonl."""
    asked = int(gate.get("n", 0))
    return Scored(asked - sum(bool(fault) for fault in gate.get("fault") or ()), asked)


def scored_at(record: TrialRecord, step: int | None) -> Scored | None:
    """Return the counts of a trial's gate; None where it has none at that step."""
    found = [gate for gate in record.heldout if gate.get("step") == step]
    return scored_in(found[-1]) if found else None


def last_scored(record: TrialRecord) -> Scored | None:
    """Return the counts of a trial's last gate; None before the first."""
    return scored_in(record.heldout[-1]) if record.heldout else None


def scored_line(records: Iterable[TrialRecord]) -> str:
    """Return which last gates are over fewer tasks than were played; empty when none is."""
    found = [(record, last_scored(record)) for record in records if record.result is not None]
    said = [
        f"{record.spec.condition}, seed {record.spec.seed}: {scored.words}{_not_counted(scored)}"
        for record, scored in found
        if scored is not None and scored.words
    ]
    if not said:
        return ""
    return f"Held-out tasks scored at the last gate, the others had a fault: {_some(said)}."


def _not_counted(scored: Scored) -> str:
    return f" (over {FAULT_SHARE:.0%} lost: no result)" if scored.is_lost else ""


def _some(said: Sequence[str]) -> str:
    more = len(said) - _MOST_NAMED
    return "; ".join(said[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")
