"""A4 of seeds until decided: what each look counted is still there and says what was recorded."""

import math
from collections.abc import Iterator, Sequence

from rltune.analysis.ends import End, beside, end_of, pairs_of
from rltune.analysis.looks import looks_taken
from rltune.analysis.rates import recorded_resolution
from rltune.analysis.verdict_words import LEVEL
from rltune.comparability.findings import Finding, error
from rltune.comparability.records import TrialRecord
from rltune.store.looks import LookRecord, read_looks
from rltune.store.run_folder import SweepFolder

_RESTORE = "Restore the trial and looks.jsonl; a look that was taken cannot be taken back."


def look_findings(folder: SweepFolder, records: Sequence[TrialRecord]) -> tuple[Finding, ...]:
    """Return what stands against the looks of a run folder; nothing for a list of seeds."""
    if folder.until is None:
        return ()
    groups: dict[str, list[End]] = {}
    for record in records:
        groups.setdefault(record.spec.condition, []).append(end_of(record))
    control = next((r.spec.condition for r in records if r.spec.is_control), "")
    looks: dict[str, list[LookRecord]] = {}
    for look in read_looks(folder.run.looks):
        looks.setdefault(look.condition, []).append(look)
    resolution = recorded_resolution(folder.metric_name, records[0]) if records else 0.0
    findings: list[Finding] = []
    for label, taken in looks.items():
        ours, theirs = groups.get(label, []), groups.get(control, [])
        findings += _missing(label, taken, ours, theirs)
        findings += _unequal(label, taken, ours, theirs, len(groups) - 1, resolution)
    return (*findings, *_beyond(folder, groups, control, looks))


def _missing(
    label: str, taken: Sequence[LookRecord], ours: Sequence[End], theirs: Sequence[End]
) -> Iterator[Finding]:
    """Yield seeds that a look counted and that have no pair of results any more."""
    pairs = pairs_of(ours, theirs)
    for look in taken:
        if gone := [seed for seed in look.seeds if seed not in pairs]:
            seeds = ", ".join(map(str, gone))
            message = f"{label}: the look at {look.planned} seeds counted seed {seeds}, which has "
            yield error("A4", f"{message}no result beside the control's now.", _RESTORE)
            return


def _unequal(
    label: str,
    taken: Sequence[LookRecord],
    ours: Sequence[End],
    theirs: Sequence[End],
    conditions: int,
    resolution: float,
) -> Iterator[Finding]:
    """Yield a look that says something else when it is computed from the trials again."""
    plan = ours[0].until if ours else None
    if plan is None:
        return
    found = looks_taken(
        ours, beside(ours, theirs), plan, level=LEVEL / conditions, resolution=resolution
    )
    recorded = [look for look in taken if look.mean is not None]
    if len(found) != len(recorded):
        message = f"{label}: {len(recorded)} looks were recorded, and its trials give {len(found)}."
        yield error("A4", message, _RESTORE)
    for look, again in zip(recorded, found, strict=False):
        is_same = math.isclose(look.mean or 0.0, again.mean, rel_tol=1e-9, abs_tol=1e-12)
        if look.decision != again.decision or not is_same:
            message = (
                f"{label}: the look at {look.planned} seeds recorded {look.decision} at "
                f"{look.mean:+.6g}, and its trials give {again.decision} at {again.mean:+.6g}."
            )
            yield error("A4", message, _RESTORE)
            return


def _beyond(
    folder: SweepFolder,
    groups: dict[str, list[End]],
    control: str,
    looks: dict[str, list[LookRecord]],
) -> Iterator[Finding]:
    """Yield a condition with fewer seeds than its looks planned: trials were removed."""
    for label, ends in groups.items():
        own = [one for name, many in looks.items() if label in (name, control) for one in many]
        planned = max((look.planned for look in own), default=0)
        if len(ends) < planned:
            message = f"{label} has {len(ends)} trials, and a look was planned at {planned} seeds."
            yield error("A4", message, _RESTORE)
