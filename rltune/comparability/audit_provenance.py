"""A1: all trials, and all attempts of each, ran on the same code, machine and tasks."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from rltune.comparability.audit_text import by_value, few, sides
from rltune.comparability.findings import Finding, error, warning
from rltune.comparability.knobs import is_task_key, moving_task_keys
from rltune.comparability.records import TrialRecord
from rltune.spec.identity import MISSING, canonical_json, flatten, same_value
from rltune.spec.keys import overlaps
from rltune.spec.problems import show

SAME_EVERYWHERE = (
    "commit",
    "dirty",
    "diff_sha256",
    "source_sha256",
    "versions",
    "device",
    "dtype",
    "engine",
    "threads",
    "remote",
    "weights_sha256",
    "tokenizer_sha256",
    "prompt_sha256",
    "manifest_sha256",
)
"""Provenance fields that A1 compares."""

LOADED = ("weights_sha256", "tokenizer_sha256", "prompt_sha256")
"""Provenance fields that are empty until the policy is loaded."""

_NOT_IN_OLD_RECORDS = frozenset({"remote", "tokenizer_sha256", "prompt_sha256"})
_PARTS = {"remote": "remote", "versions": "version of"}  # fields that are mappings

PACKAGES = ("rltune", "torch", "transformers", "tokenizers", "peft", "ray", "numpy", "pydantic")
"""Packages whose versions every trial records. Others are recorded where they make or grade the
problems of a trial, or where its custom code imports them."""

_OF_ALL = frozenset(f"version of {name}" for name in (*PACKAGES, "python", "vllm"))

DEPENDS_ON = {
    "dtype": ("policy.dtype", "policy.model"),
    "engine": ("rollout.engine",),
    "remote": ("policy.model", "policy.lora.rank", "env.kind"),
    "threads": ("resources.threads",),
    "weights_sha256": ("policy.model", "policy.dtype", "policy.lora", "env.kind"),
    "tokenizer_sha256": ("policy.model", "policy.template", "env.prompt", "env.kind"),
    "prompt_sha256": ("policy.model", "policy.template", "env"),
}
"""Provenance field -> config keys that change it; an axis over them is compared per value.

For manifest_sha256 they are the task keys (`rltune.comparability.knobs.is_task_key`).
"""

_REMEDY = "Run the sweep again from one clean checkout on one kind of machine."


def same_provenance(records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield A1: trials or attempts with other code, packages, device, weights or tasks."""
    flats = [flatten(record.spec.config) for record in records]
    for field in SAME_EVERYWHERE:
        for group in _comparable(records, flats, field):
            yield from _field_findings(group, field)
    for record in records:
        for attempt in record.provenance.get("earlier", ()):
            yield from _attempt_findings(record, attempt)
    yield from _manifests_of_the_axis(records)


def _comparable(
    records: Sequence[TrialRecord], flats: Sequence[Mapping[str, Any]], field: str
) -> list[list[TrialRecord]]:
    """Return records in groups whose configs, given flat too, let a provenance field be equal."""
    groups: dict[str, list[TrialRecord]] = {}
    for record, flat in zip(records, flats, strict=True):
        own = {
            key: value
            for key, value in flat.items()
            if _decides(key, field) or _is_drawn(key, field, flat)
        }
        groups.setdefault(canonical_json(own), []).append(record)
    return list(groups.values())


@cache  # the same keys of every trial
def _decides(key: str, field: str) -> bool:
    if field == "manifest_sha256":
        return is_task_key(key)
    return any(overlaps(key, other) for other in DEPENDS_ON.get(field, ()))


def _is_drawn(key: str, field: str, flat: Mapping[str, Any]) -> bool:
    """Return whether weights at the start follow the seed: new adapters are drawn from it."""
    if (key, field) != ("seed", "weights_sha256"):
        return False
    return bool(flat.get("policy.lora.rank", 0) > 0 and flat["policy.lora.init"] == "default")


def _field_findings(group: Sequence[TrialRecord], field: str) -> Iterator[Finding]:
    absent = [r.spec.trial_id for r in group if field not in r.provenance]
    if absent and (len(absent) < len(group) or field not in _NOT_IN_OLD_RECORDS):
        yield error("A1", f"{field} was not recorded in {few(absent)}.", _REMEDY)
    present = {r.spec.trial_id: _parts(r.provenance, field) for r in group if field in r.provenance}
    for part in dict.fromkeys(part for parts in present.values() for part in parts):
        is_of_some = field == "versions" and part not in _OF_ALL
        groups = by_value(
            (trial_id, parts.get(part))
            for trial_id, parts in present.items()
            if part in parts or not is_of_some
        )
        if len(groups) > 1:
            yield error("A1", f"{part} differs: {sides(groups)}.", _REMEDY)


def _parts(provenance: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Return what is compared under a field: itself, or `version of torch` and so on."""
    value = provenance[field]
    if field not in _PARTS or not isinstance(value, Mapping):
        return {field: value}
    return {f"{_PARTS[field]} {name}": item for name, item in sorted(value.items())}


def _attempt_findings(record: TrialRecord, attempt: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield in what an earlier attempt differs from the last one, which went on from it.

    An old record lacks fields; nothing follows from those. An attempt whose weights digest is empty
    ended before it had a policy, so that nothing of it is in the trial.
    """
    last = record.provenance
    if attempt.get("weights_sha256") == "":
        return
    for field in SAME_EVERYWHERE:
        is_loading = field in LOADED and not last.get(field)
        if attempt.get(field) is None or field not in last or is_loading:
            continue
        before, after = _parts(attempt, field), _parts(last, field)
        for part in dict.fromkeys((*before, *after)):
            old, new = before.get(part, MISSING), after.get(part, MISSING)
            if not same_value(old, new):
                message = (
                    f"{record.spec.trial_id}: {part} was {show(old)} in attempt "
                    f"{attempt.get('attempt', '?')} and {show(new)} in the last one."
                )
                yield error("A1", message, "Delete this trial and run it again.")


def _manifests_of_the_axis(records: Sequence[TrialRecord]) -> Iterator[Finding]:
    keys = moving_task_keys(record.spec.config for record in records)
    groups = by_value(
        (record.spec.trial_id, record.provenance["manifest_sha256"])
        for record in records
        if "manifest_sha256" in record.provenance
    )
    if keys and len(groups) > 1:
        message = f"manifest_sha256 differs with {', '.join(keys)}: {sides(groups)}."
        yield warning("A1", message, OTHER_TASKS)


OTHER_TASKS = "State in every figure that the conditions had other tasks: that is the intervention."
"""What to do where the axis itself changes the tasks (S8.tasks)."""
