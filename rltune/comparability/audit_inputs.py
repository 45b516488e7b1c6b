"""A1 of the files that trials read: one content under each name, in all trials and attempts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rltune.comparability.audit_text import few, sides
from rltune.comparability.findings import Finding, error
from rltune.comparability.records import TrialRecord

EDITED = "inputs_changed"
"""Field of provenance.json with the names of inputs that changed while the trial ran."""

REMEDY = (
    "Put the file back as it was for the trials to keep, delete the folders of the others, and "
    "run the sweep again."
)


def same_inputs(records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield A1: a data file, module, model or adapter file with two contents.

    Trials need not read the same files: an axis may choose among them. A name that two trials
    share must stand for one content. Older records say nothing of inputs, and nothing follows.
    """
    for name in dict.fromkeys(name for record in records for name in _inputs(record.provenance)):
        contents: dict[str, list[str]] = {}
        for record in records:
            for attempt in _attempts(record):
                if name in (own := _inputs(attempt)):
                    holders = contents.setdefault(_short(own[name]), [])
                    if record.spec.trial_id not in holders:
                        holders.append(record.spec.trial_id)
        if len(contents) > 1:
            yield error("A1", f"input {name} differs: {sides(contents)}.", REMEDY)
    yield from _edited(records)
    yield from _unrecorded(records)


def _edited(records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield files that changed while a trial ran, so that its record of them proves nothing."""
    edited: dict[str, list[str]] = {}
    for record in records:
        names = {name for attempt in _attempts(record) for name in attempt.get(EDITED) or ()}
        for name in sorted(names):
            edited.setdefault(name, []).append(record.spec.trial_id)
    for name, trials in edited.items():
        message = f"input {name} changed while these trials ran: {few(trials)}."
        yield error("A1", message, "Delete the folders of these trials, and run the sweep again.")


def _unrecorded(records: Sequence[TrialRecord]) -> Iterator[Finding]:
    absent = [r.spec.trial_id for r in records if "inputs" not in r.provenance]
    if absent and len(absent) < len(records):
        message = f"inputs were not recorded in {few(absent)}, and in the others they were."
        remedy = "Run the sweep in another --runs-dir, with one version of rltune."
        yield error("A1", message, remedy)


def _attempts(record: TrialRecord) -> list[Mapping[str, Any]]:
    """Return the last attempt and the earlier ones of which something is in the trial."""
    earlier = record.provenance.get("earlier", ())
    return [record.provenance, *(old for old in earlier if old.get("weights_sha256"))]


def _inputs(provenance: Mapping[str, Any]) -> Mapping[str, str]:
    found = provenance.get("inputs")
    return found if isinstance(found, Mapping) else {}


def _short(digest: str) -> str:
    return digest[:10] or "no such file"
