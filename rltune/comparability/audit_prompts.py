"""A2: whether all conditions of a seed drew the same tasks, and sampled alike before any update."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rltune.comparability.audit_provenance import OTHER_TASKS
from rltune.comparability.audit_text import by_value, few, sides
from rltune.comparability.findings import Finding, error, warning
from rltune.comparability.knobs import moving_task_keys, sampling_settings, task_settings
from rltune.comparability.records import TrialRecord
from rltune.spec.identity import canonical_json

Split = tuple[str, dict[str, list[str]]]
"""Where trials part, `step 3` or `task 17`, and who drew which there."""

MACHINE = ("device", "cpu_model", "engine", "threads")
"""Provenance fields on which the rounding of a forward pass depends."""

_AGAIN = "Delete these trials and run them again."
_PROVE = "Run the sweep in another --runs-dir to prove it."
_PAIR = (
    "Run the sweep again on one kind of machine, or say with every figure that its conditions did "
    "not share their luck: the intervals are right, only wider than they need be."
)


def same_prompts(records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield A2: a seed whose conditions drew other tasks, or had other luck in step 1.

    Other tasks are an error between configs that give the same ones; a warning where the axis
    changes them.
    """
    keys = moving_task_keys(record.spec.config for record in records)
    by_seed: dict[int, list[TrialRecord]] = {}
    for record in records:
        by_seed.setdefault(record.spec.seed, []).append(record)
    for seed, group in by_seed.items():
        yield from _unrecorded_tasks(group)
        parts = [split for part in grouped(group, task_settings) if (split := _first_split(part))]
        for place, drawn in parts:
            message = f"seed {seed} drew other tasks from {place} on: {sides(drawn)}."
            yield error("A2", message, _AGAIN)
        if keys and not parts and (split := _first_split(group)):
            place, drawn = split
            message = f"seed {seed} drew other tasks with {', '.join(keys)} from {place} on: "
            yield warning("A2", f"{message}{sides(drawn)}.", OTHER_TASKS)
        if not parts:
            yield from _same_luck(seed, group)
    yield from _unproved(records, by_seed.values())


def grouped(
    records: Sequence[TrialRecord], settings: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> list[list[TrialRecord]]:
    """Return records in groups whose configs have the same settings."""
    groups: dict[str, list[TrialRecord]] = {}
    for record in records:
        groups.setdefault(canonical_json(settings(record.spec.config)), []).append(record)
    return list(groups.values())


def _first_split(group: Sequence[TrialRecord]) -> Split | None:
    """Return where not all drew the same tasks; None where they agree as far as they got.

    Steps of one size are compared step by step. Steps of different sizes draw the same stream in
    other portions, so that the streams are compared task by task.
    """
    has_one_size = len({_groups(record) for record in group}) == 1
    streams: dict[str, Mapping[int, str]] = {
        record.spec.trial_id: record.task_hashes if has_one_size else record.task_stream
        for record in group
    }
    unit = "step" if has_one_size else "task"
    for place in sorted({place for stream in streams.values() for place in stream}):
        drawn = by_value(
            (name, stream[place]) for name, stream in streams.items() if place in stream
        )
        if len(drawn) > 1:
            return f"{unit} {place}", drawn
    return None


def _groups(record: TrialRecord) -> int:
    return int(record.spec.config["rollout"]["groups"])


def _unrecorded_tasks(group: Sequence[TrialRecord]) -> Iterator[Finding]:
    for record in group:
        missing = sorted(set(range(1, record.last_step + 1)) - set(record.task_hashes))
        if missing:
            message = f"{record.spec.trial_id} has no task hash for step {missing[0]}."
            yield error("A2", message, "Delete this trial and run it again.")


def _unproved(
    records: Sequence[TrialRecord], by_seed: Iterable[Sequence[TrialRecord]]
) -> Iterator[Finding]:
    """Yield what older runs did not record, so that nothing proves it."""
    trained = [record for record in records if record.last_step]
    silent = [record.spec.trial_id for record in trained if not record.task_stream]
    if silent and len({_groups(record) for record in trained}) > 1:
        message = (
            f"the single tasks of a step are not recorded in {few(silent)}: with several values of "
            "rollout.groups nothing proves that the conditions drew one stream."
        )
        yield warning("A2.not_recorded", message, _PROVE)
    pairs = [part for group in by_seed for part in grouped(group, sampling_settings)]
    shared = [record for part in pairs if len(part) > 1 for record in part if record.last_step]
    silent = [record.spec.trial_id for record in shared if not record.first_sample]
    if silent:
        message = (
            f"the tokens sampled in step 1 are not recorded in {few(silent)}: equal luck is "
            "planned there, and not proved."
        )
        yield warning("A2.not_recorded", message, _PROVE)


def _same_luck(seed: int, group: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield how trials of a seed whose configs sample alike in step 1 did not."""
    for part in grouped([r for r in group if r.first_sample], sampling_settings):
        drawn = by_value((record.spec.trial_id, record.first_sample[:10]) for record in part)
        if len(drawn) > 1:
            head = f"seed {seed} sampled other tokens in step 1, before any update: {sides(drawn)}"
            yield _luck_finding(head, part)


def _luck_finding(head: str, group: Sequence[TrialRecord]) -> Finding:
    """Return what other luck means: by what the trials ran on, and what failed in step 1."""
    faulty = [record.spec.trial_id for record in group if record.first_faults]
    if faulty:
        message = f"{head}. Episodes of that step had a fault in {few(faulty)}."
        return warning("A2.luck", message, "Repair what failed (trial.log names it). " + _PAIR)
    for field in MACHINE:
        machines = by_value((r.spec.trial_id, value) for r in group for value in _of(r, field))
        if len(machines) > 1:
            message = f"{head}. Rounding differs between machines, and {field} does: "
            return warning("A2.luck", f"{message}{sides(machines)}.", _PAIR)
    if any(_of(r, "device") != {"cpu"} or _of(r, "engine") != {"torch"} for r in group):
        message = f"{head}. Only the torch engine on a CPU rounds alike every time."
        return warning("A2.luck", message, _PAIR)
    message = f"{head}. Nothing in their configs or machines explains it."
    remedy = (
        "Find what draws outside the config (an environment or a score with randomness of its own, "
        "a search service that answers otherwise), repair it, and run the sweep in another "
        "--runs-dir."
    )
    return error("A2", message, remedy)


def _of(record: TrialRecord, field: str) -> set[Any]:
    """Return the values of a provenance field in all attempts that had a policy."""
    earlier = [old for old in record.provenance.get("earlier", ()) if old.get("weights_sha256")]
    attempts = [record.provenance, *earlier]
    return {attempt[field] for attempt in attempts if attempt.get(field) is not None}
