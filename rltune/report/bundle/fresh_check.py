"""Whether a record of fresh tasks is of the generations of its chart, their weights and no others.

That these weights solve these tasks is not seen: that takes the checkpoints.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from rltune.analysis.fresh import split_seed_of
from rltune.lineage.generations import Generation, Generations
from rltune.report.render import plural
from rltune.store.files import read_json
from rltune.store.provenance import read_provenance
from rltune.store.rundir import TrialDir
from rltune_envs.splits import Manifest

_UNSEEN = "whether these weights solve these fresh tasks, and how often they were let play"


def fresh_problems(record: Mapping[str, Any], found: Generations) -> Iterator[str]:
    """Yield where a record of fresh tasks contradicts the records of its generations.

    Args:
        record: Content of fresh.json, of this chain.
        found: The chain, as the bundle has it.

    """
    tasks, seed = record["tasks"], split_seed_of(found.chain[-1].name)
    if record.get("split_seed") != seed:
        yield f"split_seed: {record.get('split_seed')}, that of the youngest generation is {seed}"
    digest = hashlib.sha256("\n".join(tasks).encode()).hexdigest()
    for row in record["generations"]:
        if row["tasks_sha256"] != digest or len(row["success"]) != len(tasks):
            yield f"{row['name']} played other tasks than the {plural(len(tasks), 'task')} named"
    yield from _seen_before(record, found)
    for one in found.chain:
        if _is_of_other_weights(one):
            yield f"{one.name}: its card.json has other weights than its result"
    for row, known in zip(record["generations"], _known_weights(found), strict=True):
        if known and row["checkpoint_sha256"] != known:
            yield (
                f"{row['name']}, checkpoint_sha256: {row['checkpoint_sha256'][:12]}, its records "
                f"have {known[:12]}"
            )


def fresh_unseen(record: Mapping[str, Any], found: Generations) -> Iterator[str]:
    """Yield what the records of a bundle do not tell about fresh tasks."""
    pairs = zip(record["generations"], _known_weights(found), strict=True)
    if names := [row["name"] for row, known in pairs if not known]:
        yield f"the weights of {', '.join(names)}"
    if names := [one.name for one in found.chain if _manifest(one) is None]:
        yield f"the tasks of {', '.join(names)}"
    yield _UNSEEN


def _seen_before(record: Mapping[str, Any], found: Generations) -> Iterator[str]:
    """Yield the fresh tasks that are in a split of a generation."""
    contents, is_whole = set[str](), True
    for one in found.chain:
        manifest = _manifest(one)
        if manifest is None:
            is_whole = False
            continue
        tasks = (*manifest.train, *manifest.heldout, *manifest.test)
        contents |= {task.content_hash for task in tasks}
        known = {task.task_id for task in tasks}
        yield from (f"{name} is a task of {one.name}" for name in record["tasks"] if name in known)
    if is_whole and record.get("excluded") != len(contents):
        yield f"excluded: {record.get('excluded')}, the generations have {len(contents)} tasks"


def _manifest(one: Generation) -> Manifest | None:
    """Return the frozen tasks of a generation; None where the bundle does not have them.

    Raises:
        ValueError: They were edited.

    """
    digest = read_provenance(one.trial).get("manifest_sha256")
    for path in sorted(one.trial.path.parents[1].glob("tasks*.json")):
        content = read_json(path)
        if isinstance(content, dict) and content.get("sha256") == digest:
            return Manifest.from_json(content) if digest else None
    return None


def _known_weights(found: Generations) -> Iterator[str]:
    """Yield the digest of the weights of each generation, its start first; empty where unknown."""
    yield _at_start(found.chain[0].trial)
    for i, one in enumerate(found.chain):
        child = found.chain[i + 1] if i + 1 < len(found.chain) else None
        yield _chosen(one) or (_handed_on(one, child) if child is not None else "")


def _chosen(one: Generation) -> str:
    """Return the digest that its card has of the checkpoint, or that it began with."""
    if one.step == 0:
        return _at_start(one.trial)
    checkpoint = _shipped(one.trial)
    is_of_step = str(checkpoint.get("path", "")).endswith(one.trial.checkpoint(one.step).name)
    return _digest(checkpoint) if is_of_step else ""


def _is_of_other_weights(one: Generation) -> bool:
    """Tell whether the card of a trial names another file than its result."""
    result, shipped = one.trial.read_done(), _shipped(one.trial).get("file_sha256")
    written = result.weights_sha256 if result is not None else ""
    return bool(shipped and written) and shipped != written


def _shipped(trial: TrialDir) -> Mapping[str, Any]:
    """Return what the card of a trial says of the checkpoint that its gate chose."""
    card = read_json(trial.model_card) if trial.model_card.is_file() else {}
    return card.get("checkpoint") or {} if card.get("trial_id") == trial.trial_id else {}


def _handed_on(one: Generation, child: Generation) -> str:
    """Return the digest with which the next one began, where it is that of the same tensors."""
    policies = [trial.read_spec().config["policy"] for trial in (one.trial, child.trial)]
    is_whole = all(policy["lora"]["rank"] == 0 for policy in policies)
    is_same = is_whole and policies[0].get("dtype") == policies[1].get("dtype")
    return _at_start(child.trial) if child.has_model_of_parent and is_same else ""


def _at_start(trial: TrialDir) -> str:
    return _digest(read_provenance(trial))


def _digest(record: Mapping[str, Any]) -> str:
    """Return the digest of weights in a record; empty where it is not known."""
    known = str(record.get("weights_sha256", ""))
    return "" if known == "unknown" else known
