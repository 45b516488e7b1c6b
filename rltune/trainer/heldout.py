"""The held-out evaluation: frozen tasks, one episode each, the same sampling noise each time."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rltune.maths.streams import stream_seed
from rltune.policy.load import Policy
from rltune.rollout.engine import Engine, SamplingParams
from rltune.rollout.episode import Slot, play
from rltune.spec.schema import TrialConfig
from rltune.types import Episode
from rltune_envs.base import Task, TextEnv


@dataclass(frozen=True, slots=True)
class HeldoutResult:
    """One evaluation, task by task.

    Attributes:
        tasks_sha256: Digest of the task ids in order.
        episodes: One per held-out task, in the manifest's order.

    """

    tasks_sha256: str
    episodes: tuple[Episode, ...]

    @property
    def metrics(self) -> dict[str, float]:
        """The `heldout/` metrics."""
        n = len(self.episodes)
        turns = [turn for episode in self.episodes for turn in episode.turns]
        return {
            "heldout/success_rate": sum(e.success for e in self.episodes) / n,
            "heldout/reward_mean": sum(e.reward for e in self.episodes) / n,
            "heldout/turns": len(turns) / n,
            "heldout/invalid_action_rate": sum(not t.is_valid for t in turns) / max(1, len(turns)),
        }


def evaluate(
    config: TrialConfig,
    policy: Policy,
    engine: Engine,
    tasks: Sequence[Task],
    *,
    make_env: Callable[[], TextEnv],
) -> HeldoutResult:
    """Play every held-out task once at the gate's temperature.

    The sampling seeds depend on the trial's seed and the task only. Gates of one trial, and trials
    of one seed, therefore share their luck, and differences between them are less noisy.
    """
    rollout = config.rollout
    slots = [
        Slot(task, group, 0, stream_seed(config.seed, "heldout", group))
        for group, task in enumerate(tasks)
    ]
    params = SamplingParams(
        config.gate.temperature, rollout.max_response_tokens, rollout.max_context
    )
    episodes = play(
        slots, make_env=make_env, renderer=policy.renderer, engine=engine, params=params
    )
    return HeldoutResult(task_digest(tasks), tuple(episodes))


def task_digest(tasks: Sequence[Task]) -> str:
    """Return the sha256 of the task ids in order."""
    return hashlib.sha256("\n".join(task.task_id for task in tasks).encode()).hexdigest()
