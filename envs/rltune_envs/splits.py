"""Frozen task splits: train, held-out and test, disjoint by content, with floor and ceiling.

Held-out tasks are for the gate, which chooses checkpoints; test tasks are for one last measurement.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from functools import partial
from itertools import combinations
from typing import Any

from rltune_envs.at_once import of_each
from rltune_envs.base import Step, Task, TextEnv
from rltune_envs.bounds import Floor, ceiling_of, floor_of
from rltune_envs.draw import MAX_SPLIT_SEED, PARTS, draw
from rltune_envs.errors import TaskError
from rltune_envs.faults import TRIES, retry
from rltune_envs.protocols import (
    HasCeiling,
    HasExpert,
    HasFiles,
    HasGoldResponse,
    require,
    supports,
)


class Proof(StrEnum):
    """Who showed that tasks can be solved, and that their verifier pays for it."""

    EXPERT = "expert"  # the environment's perfect player
    GOLD_RESPONSE = "gold_response"  # what it says is right in each turn
    NONE = "none"  # nobody: luck decides, or the environment knows no solution


@dataclass(frozen=True, slots=True)
class Manifest:
    """The frozen tasks of a sweep. No content hash occurs in two splits, or twice in one.

    Attributes:
        train: Tasks that training draws from.
        heldout: Tasks that only the gate sees.
        heldout_floor: Held-out success of the random player, and how it is known.
        heldout_ceiling: Exact expected held-out success rate of a perfect player; None if unknown.
        n_duplicates: Tasks or rows that were left out as duplicates.
        test: Tasks that only the final measurement sees.
        test_floor: As `heldout_floor`, over the test tasks; None without any.
        test_ceiling: As `heldout_ceiling`, over the test tasks; None without any.
        difficulty_unit: What `Task.difficulty` counts.
        proved: How the held-out and the test tasks proved that they can be solved.
        files: Path -> sha256 of the files that the tasks are read from; empty without any.

    """

    train: tuple[Task, ...]
    heldout: tuple[Task, ...]
    heldout_floor: Floor
    heldout_ceiling: float | None
    n_duplicates: int
    test: tuple[Task, ...] = ()
    test_floor: Floor | None = None
    test_ceiling: float | None = None
    difficulty_unit: str = "actions"
    proved: Proof = Proof.NONE
    files: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the content, a report on each split, and a sha256 over all of it, as JSON.

        `files` is left out where there are none.
        """
        body = {**asdict(self), "report": report(self)}
        if not self.files:
            del body["files"]
        return {**body, "sha256": _digest(body)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Manifest":
        """Read what `to_json` wrote.

        Raises:
            ValueError: The content does not match its sha256, its fields are not a manifest's, or a
                task is in two splits, or twice in one.

        """
        body = {key: value for key, value in data.items() if key != "sha256"}
        if _digest(body) != data.get("sha256"):
            raise ValueError("the task manifest does not match its sha256; it was edited or torn")
        names = {one.name for one in fields(Manifest)}
        body.setdefault("files", {})
        if set(body) != {*names, "report"}:
            odd = sorted({*names, "report"} ^ set(body))
            raise ValueError(
                f"the task manifest is of another version: {', '.join(odd)} is missing or unknown; "
                "start a new sweep folder"
            )
        typed: dict[str, Any] = {part: tuple(Task(**one) for one in body[part]) for part in PARTS}
        typed |= {name: Floor.from_json(body[name]) for name in ("heldout_floor", "test_floor")}
        typed["proved"] = Proof(body["proved"])
        manifest = Manifest(**{**{name: body[name] for name in names}, **typed})
        require_disjoint(manifest)
        return manifest

    @property
    def sha256(self) -> str:
        """Digest of the content."""
        return str(self.to_json()["sha256"])


def build_manifest(
    env: TextEnv,
    *,
    train_tasks: int,
    heldout_tasks: int,
    split_seed: int,
    test_tasks: int = 0,
    others: Sequence[TextEnv] = (),
) -> Manifest:
    """Draw all splits from one stream of seeds, skipping contents seen before.

    Held-out tasks are drawn first, then test tasks, then training tasks: what is measured on does
    not depend on how much is trained on. Held-out and test tasks prove themselves; see `validate`.
    Where the environment has named sets (`HasEvalSets`), they come from these, in the order of the
    sets and as evenly as possible.

    Args:
        env: Makes and plays the tasks; its running episode is lost.
        train_tasks: Tasks to draw for training; at most so many where the environment has parts of
            its own, and so for `test_tasks`.
        heldout_tasks: Tasks to draw for the gate.
        split_seed: Names the stream. Independent of the trial's seed, so that all trials share it.
        test_tasks: Tasks to draw for the final measurement.
        others: Equal environments: tasks are proved, and floors measured, on all at the same time.

    Raises:
        ValueError: No task is held out, so there is nothing to measure on, or a number is negative
            or too large.
        GenerationError: The environment does not have that many different tasks.
        TaskError: The gold solution of a held-out or test task does not earn full marks.

    """
    wanted = {"heldout": heldout_tasks, "test": test_tasks, "train": train_tasks}
    if heldout_tasks < 1 or min(wanted.values()) < 0:
        given = ", ".join(f"{part}_tasks is {n}" for part, n in wanted.items())
        raise ValueError(f"{given}; at least 1 held-out task is needed, and no number below 0")
    if not 0 <= split_seed <= MAX_SPLIT_SEED:
        raise ValueError(f"split_seed is {split_seed}; choose one from 0 to {MAX_SPLIT_SEED}")
    tasks, n_duplicates = draw(env, wanted, split_seed)
    retry(partial(env.reset, seed=tasks["heldout"][0].seed))  # refuse one that never starts
    proved = validate(env, (*tasks["heldout"], *tasks["test"]), others=others)
    bounds = _bounds(env, tasks["heldout"], tasks["test"], others)
    parts: dict[str, Any] = {**tasks, **bounds}
    return Manifest(
        **parts,
        n_duplicates=n_duplicates,
        difficulty_unit=env.difficulty_unit,
        proved=proved,
        files=dict(env.file_digests()) if supports(env, HasFiles) else {},
    )


def require_same_files(env: TextEnv, manifest: Manifest) -> None:
    """Check that the files of an environment are those that a manifest was drawn from.

    Raises:
        TaskError: One changed behind its path; it is named.

    """
    now = retry(env.file_digests) if supports(env, HasFiles) else {}
    for path, digest in manifest.files.items():
        if path in now and now[path] != digest:
            raise TaskError(
                f"{path}: it changed after the tasks were frozen (sha256 {now[path][:10]}, was "
                f"{digest[:10]}); restore it, or start over in a new sweep folder"
            )


def validate(env: TextEnv, tasks: Iterable[Task], *, others: Sequence[TextEnv] = ()) -> Proof:
    """Check that the gold solution of each task earns full marks, and return who played it.

    Left out are tasks that a perfect player solves only with luck, which one episode cannot prove,
    and tasks that no episode is long enough for.

    Args:
        env: Plays the tasks, with the verifier of the training.
        tasks: Tasks to prove.
        others: Equal environments, which play some of them at the same time.

    Raises:
        TaskError: One failed, the first in order; it is named, with its outcome.

    """
    proof = _proof(env)
    if proof is not Proof.NONE:
        of_each(_require_solved, [env, *others], list(tasks))
    return proof


def _require_solved(env: TextEnv, task: Task) -> None:
    """Refuse a task whose gold solution earns less than full marks, though no luck is needed."""
    if not _is_solvable(env, task):
        return
    steps = _prove(env, task)
    if not steps or not steps[-1].success:
        raise TaskError(
            f"{task.task_id} (seed {task.seed}): its own gold solution does not earn full "
            f"marks: {_failure(steps)}. Repair the task or its verifier"
        )


def _proof(env: TextEnv) -> Proof:
    """Return who can prove tasks."""
    if not env.is_deterministic:
        return Proof.NONE
    if supports(env, HasExpert):
        return Proof.EXPERT
    return Proof.GOLD_RESPONSE if supports(env, HasGoldResponse) else Proof.NONE


def _is_solvable(env: TextEnv, task: Task) -> bool:
    """Return whether a perfect player surely solves it; taken to be where that is unknown."""
    if not supports(env, HasCeiling):
        return True
    return retry(partial(env.optimal_success_probability, task.seed)) >= 1


def report(manifest: Manifest) -> dict[str, dict[str, Any]]:
    """Return per split its size, its difficulties, and how many tasks are near a training task.

    Tasks with the same `near_hash` are not duplicates, but who learned one has a head start on the
    other. `example` names one such pair, the training task second.
    """
    near = {task.near_hash: task.task_id for task in reversed(manifest.train)}
    out: dict[str, dict[str, Any]] = {}
    for part, tasks in _parts(manifest).items():
        known = (task.difficulty for task in tasks if task.difficulty is not None)
        difficulties = sorted(Counter(known).items())
        pairs = [(task.task_id, near[task.near_hash]) for task in tasks if task.near_hash in near]
        out[part] = {"n": len(tasks), "difficulty": {str(k): n for k, n in difficulties}}
        if part != "train":
            out[part] |= {"near_train": len(pairs), "example": list(pairs[0]) if pairs else None}
    return out


def require_disjoint(manifest: Manifest) -> None:
    """Check that no content occurs in two splits, or twice in one.

    Raises:
        ValueError: One does; the splits and the first such task are named.

    """
    parts = _parts(manifest)
    for part, tasks in parts.items():
        if repeated := _repeated(task.content_hash for task in tasks):
            names = [task.task_id for task in tasks if task.content_hash in repeated]
            raise ValueError(f"{len(repeated)} tasks are twice in {part}, {names[0]} first")
    for one, other in combinations(parts, 2):
        known = {task.content_hash for task in parts[one]}
        if shared := [task for task in parts[other] if task.content_hash in known]:
            raise ValueError(
                f"{len(shared)} tasks are both in {one} and in {other}, {shared[0].task_id} first"
            )


def _parts(manifest: Manifest) -> dict[str, tuple[Task, ...]]:
    return {"train": manifest.train, "heldout": manifest.heldout, "test": manifest.test}


def _repeated(hashes: Iterable[str]) -> set[str]:
    return {value for value, n in Counter(hashes).items() if n > 1}


def _prove(env: TextEnv, task: Task) -> list[Step]:
    """Return the steps of a perfect player's episode, repeated after a fault."""
    steps: list[Step] = []
    for _ in range(TRIES):
        steps = retry(partial(_play_perfectly, env, task))
        if not any(step.fault for step in steps):
            break
    return steps


def _play_perfectly(env: TextEnv, task: Task) -> list[Step]:
    """Return the steps of a perfect player's episode, unfinished where it gives up."""
    env.reset(seed=task.seed)
    steps: list[Step] = []
    while (response := _perfect_response(env)) is not None:
        steps.append(env.step(response))
        if steps[-1].has_ended:
            break
    return steps


def _perfect_response(env: TextEnv) -> str | None:
    """Return what the expert answers; without one, what is right to say."""
    if supports(env, HasExpert):
        actions = env.expert_actions()
        return env.format_response(actions) if actions else None
    gold = require(env, HasGoldResponse).gold_response()
    return env.response_prefix + gold.texts[0] if gold and gold.texts else None


def _failure(steps: Sequence[Step]) -> str:
    if faults := [step.fault for step in steps if step.fault]:
        return faults[0]
    if not steps or not steps[-1].has_ended:
        return "the expert gave up"
    last = steps[-1]
    measures = "".join(f", {name} {value:g}" for name, value in sorted(last.auxiliary.items()))
    return f"it ended as {last.failure_class.value!r}{measures}"


def _bounds(
    env: TextEnv, heldout: Sequence[Task], test: Sequence[Task], others: Sequence[TextEnv]
) -> dict[str, Any]:
    return {
        "heldout_floor": floor_of(env, heldout, others=others),
        "heldout_ceiling": ceiling_of(env, heldout),
        "test_floor": floor_of(env, test, others=others),
        "test_ceiling": ceiling_of(env, test),
    }


def _digest(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
