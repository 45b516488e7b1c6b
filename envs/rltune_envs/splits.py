"""Frozen task splits: train and held-out, disjoint by content, with exact floor and ceiling."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

from rltune_envs.base import Task, TextEnv
from rltune_envs.errors import GenerationError

_STREAM = 1 << 40  # seeds of one split_seed; far more than any split draws
MAX_DUPLICATES = 10_000  # in a row; then the environment has no more different tasks to give


@dataclass(frozen=True, slots=True)
class Manifest:
    """The frozen tasks of a sweep.

    Attributes:
        train: Tasks that training draws from.
        heldout: Tasks that only the gate sees. No content hash occurs in both, or twice in one.
        heldout_floor: Exact expected held-out success rate of uniform random actions.
        heldout_ceiling: Exact held-out success rate of a perfect player within the limits.
        n_duplicates: Generated tasks that were skipped because their content had been drawn before.

    """

    train: tuple[Task, ...]
    heldout: tuple[Task, ...]
    heldout_floor: float
    heldout_ceiling: float
    n_duplicates: int

    def to_json(self) -> dict[str, Any]:
        """Return the content as plain JSON, its own sha256 included."""
        body = asdict(self)
        return {**body, "sha256": _digest(body)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> "Manifest":
        """Read what `to_json` wrote.

        Raises:
            ValueError: The content does not match its sha256, or a training task is held out, too.

        """
        body = {key: value for key, value in data.items() if key != "sha256"}
        if _digest(body) != data.get("sha256"):
            raise ValueError("the task manifest does not match its sha256; it was edited or torn")
        tasks = {part: tuple(Task(**task) for task in body[part]) for part in ("train", "heldout")}
        manifest = Manifest(**{**body, **tasks})
        if overlap := overlapping_tasks(manifest):
            raise ValueError(
                f"{len(overlap)} training tasks are also held out, {overlap[0].task_id} first"
            )
        return manifest

    @property
    def sha256(self) -> str:
        """Digest of the content."""
        return _digest(asdict(self))


def build_manifest(
    env: TextEnv, *, train_tasks: int, heldout_tasks: int, split_seed: int
) -> Manifest:
    """Draw both splits from one stream of seeds, held-out first, skipping contents seen before.

    Args:
        env: Makes and plays the tasks; its running episode is lost.
        train_tasks: Tasks to draw for training.
        heldout_tasks: Tasks to draw for the gate.
        split_seed: Names the stream. Independent of the trial's seed, so that all trials share it.

    Raises:
        ValueError: No task is held out, so there is nothing to measure on.
        GenerationError: The environment does not have that many different tasks.

    """
    if heldout_tasks < 1:
        raise ValueError(f"heldout_tasks is {heldout_tasks}; at least 1 is needed")
    seen: set[str] = set()
    seeds = count(split_seed * _STREAM)
    heldout = tuple(_distinct(env, seeds, seen, heldout_tasks))
    train = tuple(_distinct(env, seeds, seen, train_tasks))
    floor = sum(env.random_success_probability(task.seed) for task in heldout)
    solved = sum(is_solved_by_expert(env, task) for task in heldout)
    drawn = (*heldout, *train)[-1].seed - split_seed * _STREAM + 1
    return Manifest(
        train,
        heldout,
        heldout_floor=floor / len(heldout),
        heldout_ceiling=solved / len(heldout),
        n_duplicates=drawn - len(seen),
    )


def overlapping_tasks(manifest: Manifest) -> tuple[Task, ...]:
    """Return the training tasks whose content is also held out; empty for a sound manifest."""
    heldout = {task.content_hash for task in manifest.heldout}
    return tuple(task for task in manifest.train if task.content_hash in heldout)


def is_solved_by_expert(env: TextEnv, task: Task) -> bool:
    """Whether a perfect player solves the task within the limits of an episode."""
    env.reset(seed=task.seed)
    while (actions := env.expert_actions()) is not None:
        step = env.step(env.format_response(actions))
        if step.terminated or step.truncated:
            return step.success
    return False


def _distinct(env: TextEnv, seeds: Iterator[int], seen: set[str], wanted: int) -> Iterator[Task]:
    n_found = n_duplicates = 0
    while n_found < wanted:
        task = env.task(next(seeds))
        if task.content_hash in seen:
            n_duplicates += 1
            if n_duplicates == MAX_DUPLICATES:
                raise GenerationError(
                    f"{MAX_DUPLICATES} tasks in a row had been drawn before, after {len(seen)} "
                    "different ones; ask for fewer tasks or use a larger room"
                )
            continue
        seen.add(task.content_hash)
        n_found, n_duplicates = n_found + 1, 0
        yield task


def _digest(body: dict[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
