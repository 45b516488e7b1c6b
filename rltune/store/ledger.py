"""The ledger of a sweep: what its driver planned, started and saw end. Only the driver writes it.

Ray's own state is never the source of truth; what is left to run follows from this file
and the markers in the trial folders.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from rltune.errors import Problem
from rltune.store.files import to_json, utc_now
from rltune.store.jsonl import append_jsonl_many, read_jsonl


class LedgerEvent(StrEnum):
    """What happened to a trial."""

    PLANNED = "planned"  # part of the sweep
    STARTED = "started"  # handed to Ray
    DONE = "done"  # wrote its DONE marker
    FAILED = "failed"  # raised
    DIVERGED = "diverged"  # a loss or gradient was not finite
    INTERRUPTED = "interrupted"  # stopped from outside, with a checkpoint
    LOST = "lost"  # started, and its driver died before it saw the end


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One line of ledger.jsonl."""

    time: str
    event: LedgerEvent
    trial_id: str
    attempt: int  # 0 for planned, then 1, 2, ...
    launch: str  # name of the driver's launch: one Tuner, one folder under tune/
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TrialLedger:
    """The entries of one trial, folded."""

    trial_id: str  # name of the trial
    attempts: int  # how many attempts were started
    last: LedgerEntry  # the last entry

    @property
    def is_open(self) -> bool:
        """Started and not ended: running while its driver lives, lost when it does not."""
        return self.last.event is LedgerEvent.STARTED


@dataclass(frozen=True, slots=True)
class LedgerState:
    """Every trial of the ledger, in the order in which they were first named."""

    trials: Mapping[str, TrialLedger]
    problems: tuple[Problem, ...]

    @property
    def open_trials(self) -> tuple[TrialLedger, ...]:
        """Trials that were started and have not ended: lost, once their driver is dead."""
        return tuple(trial for trial in self.trials.values() if trial.is_open)

    def attempts(self, trial_id: str) -> int:
        """Return how many attempts of a trial were started."""
        trial = self.trials.get(trial_id)
        return trial.attempts if trial else 0


@dataclass(frozen=True, slots=True)
class Ledger:
    """An append-only ledger.jsonl."""

    path: Path

    def plan(self, trial_ids: Sequence[str], *, launch: str) -> None:
        """Write `planned` for the trials that the ledger does not know yet."""
        known = self.read().trials
        new = [name for name in trial_ids if name not in known]
        self._append(_entry_now(LedgerEvent.PLANNED, name, 0, launch) for name in new)

    def log(
        self, trial_id: str, event: LedgerEvent, *, attempt: int, launch: str, reason: str = ""
    ) -> None:
        """Write what happened to an attempt; durable when this returns."""
        self._append([_entry_now(event, trial_id, attempt, launch, reason)])

    def close_lost(self, *, launch: str) -> tuple[TrialLedger, ...]:
        """Write `lost` for every open attempt and return them.

        Call it holding the driver lock, before starting any.
        """
        lost = self.read().open_trials
        self._append(
            _entry_now(LedgerEvent.LOST, trial.trial_id, trial.last.attempt, launch, _gone(trial))
            for trial in lost
        )
        return lost

    def _append(self, entries: Iterable[LedgerEntry]) -> None:
        append_jsonl_many(self.path, map(to_json, entries))

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return every line that is an entry, in order."""
        found = map(_entry, read_jsonl(self.path).rows)
        return tuple(entry for entry in found if entry is not None)

    def read(self) -> LedgerState:
        """Fold the file to one state per trial; report and skip any other line."""
        read = read_jsonl(self.path)
        problems = list(read.problems)
        trials: dict[str, TrialLedger] = {}
        for row in read.rows:
            entry = _entry(row)
            if entry is None:
                what = f"not a ledger entry: {row!r}."
                problems.append(Problem(str(self.path), what, action="It is skipped."))
                continue
            before = trials.get(entry.trial_id)
            attempts = max(before.attempts if before else 0, entry.attempt)
            trials[entry.trial_id] = TrialLedger(entry.trial_id, attempts, entry)
        return LedgerState(trials, tuple(problems))


def _gone(trial: TrialLedger) -> str:
    return f"launch {trial.last.launch} ended before it reported this attempt's end"


def _entry_now(
    event: LedgerEvent, trial_id: str, attempt: int, launch: str, reason: str = ""
) -> LedgerEntry:
    return LedgerEntry(
        time=utc_now(),
        event=event,
        trial_id=trial_id,
        attempt=attempt,
        launch=launch,
        reason=reason,
    )


def _entry(row: Mapping[str, Any]) -> LedgerEntry | None:
    try:
        entry = LedgerEntry(**row)
        return replace(entry, event=LedgerEvent(entry.event), attempt=int(entry.attempt))
    except (TypeError, ValueError):
        return None
