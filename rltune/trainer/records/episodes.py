"""Held-out results and episodes of a running trial, as JSON lines."""

from collections.abc import Iterator, Sequence
from typing import Any

from rltune.store.jsonl import append_jsonl, append_jsonl_many, truncate_after_step
from rltune.store.rundir import TrialDir
from rltune.trainer.filtering import FilterResult
from rltune.trainer.heldout import HeldoutResult
from rltune.trainer.records.outcomes import valid
from rltune.types import Episode


def write_heldout(trial: TrialDir, result: HeldoutResult, *, step: int, temperature: float) -> None:
    """Append one gate's outcome."""
    append_jsonl(trial.heldout, gate_row(result, step=step, temperature=temperature))


def gate_row(result: HeldoutResult, *, step: int, temperature: float) -> dict[str, Any]:
    """Return one gate's outcome, task by task; a greedy gate says `do_sample: false`."""
    return {
        "step": step,
        "tasks_sha256": result.tasks_sha256,
        "temperature": temperature,
        "do_sample": temperature > 0,
        "n": len(result.episodes),
        "scored": len(valid(result.episodes)),
        "success": [int(episode.success) for episode in result.episodes],
        "reward": [episode.reward for episode in result.episodes],
        "failure_class": [episode.failure_class for episode in result.episodes],
        "auxiliary": {
            name: [episode.auxiliary.get(name) for episode in result.episodes]
            for name in result.auxiliary_names
        },
        "fault": [episode.fault for episode in result.episodes],
        **({"set": list(result.sets)} if result.sets else {}),
    }


def write_episodes(
    trial: TrialDir, episodes: Sequence[Episode], chosen: FilterResult, *, step: int
) -> None:
    """Append a step's episodes, those of dropped groups included."""
    append_jsonl_many(trial.episodes, _episode_rows(episodes, chosen, step), sync=False)


def forget_after(trial: TrialDir, step: int) -> None:
    """Cut all records back to a checkpoint's step: what came later is done again."""
    for path in (trial.metrics, trial.heldout, trial.episodes, trial.replays):
        if path.exists():
            truncate_after_step(path, step)


def _episode_rows(
    episodes: Sequence[Episode], chosen: FilterResult, step: int
) -> Iterator[dict[str, Any]]:
    for episode, kept in zip(episodes, chosen.keep_N, strict=True):
        yield {
            "step": step,
            "task_id": episode.task_id,
            "task_seed": episode.task_seed,
            "noise_seed": episode.noise_seed,
            "group": episode.group,
            "member": episode.member,
            "kept": bool(kept),
            "success": episode.success,
            "truncated": episode.truncated,
            "reward": round(episode.reward, 6),
            "failure_class": episode.failure_class,
            "auxiliary": dict(episode.auxiliary),
            "fault": episode.fault,
            "turns": [
                {
                    "response": turn.response,
                    "actions": turn.actions,
                    "reward": round(turn.reward, 6),
                    "is_valid": turn.is_valid,
                    "n_invalid": turn.n_invalid,
                    "n_over_limit": turn.n_over_limit,
                    "fault": turn.fault,
                }
                for turn in episode.turns
            ],
        }
