"""The two sides of a comparison, and the reasons to refuse one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rltune.analysis.audit import Audit
from rltune.comparability.records import TrialRecord
from rltune.errors import InputError, Problem
from rltune.lineage.noise import task_values
from rltune.spec.identity import diff_configs
from rltune.spec.keys import of_its_variants

RERUN = "Run `rltune sweep` again; it resumes."


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison.

    Attributes:
        label: As shown.
        records: Its trials: one, or those of a condition.
        is_trial: Whether a single trial was named.
        run: Name of its run folder.
        metric: Metric of its sweep.
        mode: `max` or `min`.
        audit: Of its run folder.
        sweep: Every trial of its sweep: the family of its verdict; none for a single trial.
        same_runs: Condition of the sweep -> those that are the same run up to a factor.
        stamps: Warnings of the proof that the sweep neither remedied nor accepted.

    """

    label: str
    records: Sequence[TrialRecord]
    is_trial: bool
    run: str
    metric: str
    mode: str
    audit: Audit
    sweep: Sequence[TrialRecord] = ()
    same_runs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    stamps: tuple[str, ...] = ()

    @property
    def planned(self) -> int:
        """Seeds planned."""
        return len(self.records)

    def finals(self) -> dict[int, float]:
        """Return seed -> metric at the last gate, of the trials with a result."""
        values = {r.spec.seed: r.result.final_metric for r in self.records if r.result}
        return {seed: value for seed, value in values.items() if math.isfinite(value)}

    def record(self, seed: int) -> TrialRecord:
        """Return the trial of a seed."""
        return next(record for record in self.records if record.spec.seed == seed)


def last_gate(record: TrialRecord) -> Mapping[str, Any]:
    """Return the newest held-out record of a trial; empty without one."""
    return record.heldout[-1] if record.heldout else {}


def require_comparable(a: Side, b: Side) -> None:
    """Refuse two sides whose numbers do not measure the same thing.

    Raises:
        InputError: Why, and what could be compared instead.

    """
    problem = _why_not(a, b)
    if problem is not None:
        raise InputError(problem)


def _why_not(a: Side, b: Side) -> Problem | None:
    where = f"{a.label} and {b.label}"
    ids = [{record.spec.trial_id for record in side.records} for side in (a, b)]
    if a.run == b.run and ids[0] & ids[1]:
        if a.is_trial or b.is_trial:
            what, action = "a trial cannot be compared with itself.", "Name two trials."
        else:
            what, action = "a condition cannot be compared with itself.", "Name two conditions."
        return Problem(where, what, action=action)
    if (a.metric, a.mode) != (b.metric, b.mode):
        what = f"the metrics differ: {a.metric} ({a.mode}) and {b.metric} ({b.mode})."
        return Problem(where, what, action="Compare trials of sweeps with the same metric.")
    for side in (a, b):
        if not side.finals():
            what = "no trial has finished with a finite metric."
            return Problem(side.label, what, action=RERUN)
    return _other_evaluation(a, b, where) or _unpaired(a, b, where)


def _other_evaluation(a: Side, b: Side, where: str) -> Problem | None:
    named = {"tasks_sha256": "held-out tasks", "n": "numbers of held-out tasks"}
    named |= {"temperature": "gate temperatures", "do_sample": "sampling modes at the gate"}
    for column, name in named.items():
        seen = [_seen(side, column) for side in (a, b)]
        if len(seen[0] | seen[1]) > 1:
            texts = (", ".join(sorted(one[:12] for one in each)) for each in seen)
            what = f"the {name} differ: {' and '.join(texts)}."
            action = "Their numbers are not comparable; evaluate both on the same tasks."
            return Problem(where, what, action=action)
    return None


def _seen(side: Side, field: str) -> set[str]:
    done = (record for record in side.records if record.result is not None)
    return {str(last_gate(record).get(field, "not recorded")) for record in done}


def _unpaired(a: Side, b: Side, where: str) -> Problem | None:
    """Refuse one trial against many of other seeds: neither seeds nor tasks pair them."""
    seeds = [sorted(side.finals()) for side in (a, b)]
    counts = sorted(map(len, seeds))
    if counts[0] == 1 and counts[1] > 1 and not set(seeds[0]) & set(seeds[1]):
        what = f"seeds {seeds[0]} and {seeds[1]}: one against several, none shared."
        return Problem(where, what, action="Name two trials, or run the missing seeds.")
    is_per_task = all(
        task_values(last_gate(side.record(seed)), side.metric) is not None
        for side, known in zip((a, b), seeds, strict=True)
        for seed in known
    )
    if counts[0] == 1 and not is_per_task:
        what = f"{a.metric} was recorded as a mean only, and one seed has no spread."
        return Problem(where, what, action="Run more seeds.")
    return None


def differing_keys(a: Side, b: Side) -> list[str]:
    """Return the config keys in which the two sides differ, their seed aside."""
    ours, theirs = (of_its_variants(side.records[0].spec.config) for side in (a, b))
    return [key for key in diff_configs(ours, theirs) if key != "seed"]
