"""The held-out evaluation: frozen tasks, one episode each, always with the same sampling seeds."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rltune.forecast.memory import gate_at_once
from rltune.maths.streams import noise_seed, stream_seed
from rltune.policy.load import Policy
from rltune.rollout.engine import Engine, SamplingParams
from rltune.rollout.episode import Slot, play
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.records.outcomes import (
    cut_shares,
    failure_metrics,
    outcome_metrics,
    set_metrics,
)
from rltune.trainer.tasks import workers_of
from rltune.types import Episode
from rltune_envs.base import SET, Task, TextEnv
from rltune_envs.faults import retry


@dataclass(frozen=True, slots=True)
class HeldoutResult:
    """One evaluation, task by task."""

    tasks_sha256: str  # digest of the task ids in order
    episodes: tuple[Episode, ...]  # one per held-out task, in the manifest's order
    auxiliary_names: tuple[str, ...]  # the env's own measures of an episode
    sets: tuple[str, ...] = ()  # name of the set of each task; empty without named sets

    @property
    def metrics(self) -> dict[str, float]:
        """The `heldout/` metrics, over the episodes without a fault."""
        outcomes = outcome_metrics(
            self.episodes, prefix="heldout", auxiliary_names=self.auxiliary_names
        )
        cut = {f"heldout/{name}": share for name, share in cut_shares(self.episodes).items()}
        named = set_metrics(
            self.episodes, self.sets, prefix="heldout", auxiliary_names=self.auxiliary_names
        )
        return {**outcomes, **named, **cut, **failure_metrics(self.episodes)}


def evaluate(
    config: TrialConfig,
    policy: Policy,
    engine: Engine,
    tasks: Sequence[Task],
    *,
    make_env: Callable[[], TextEnv],
    step: int,
    purpose: str = "heldout",
) -> HeldoutResult:
    """Play every task once at the gate's temperature.

    The sampling seeds depend on the trial's seed and the task only, so that differences between
    gates of one trial, and between trials of one seed, are less noisy. The environment's luck is
    the same in trials of one seed, and fresh at every step: no gate can be won by knowing it.
    `purpose` names the streams of the seeds.
    """
    rollout = config.rollout
    slots = [
        Slot(
            task,
            group,
            0,
            stream_seed(config.seed, purpose, group),
            noise_seed(config.seed, purpose, step, group),
        )
        for group, task in enumerate(tasks)
    ]
    params = SamplingParams(
        config.gate.temperature, rollout.max_response_tokens, rollout.max_context
    )
    episodes: list[Episode] = []
    at_once = gate_at_once(config) or len(slots)
    for first in range(0, len(slots), max(1, at_once)):
        episodes += play(
            slots[first : first + at_once],
            make_env=make_env,
            renderer=policy.renderer,
            engine=engine,
            params=params,
            workers=workers_of(config),
        )
    names = tuple(str(task.facts.get(SET, "")) for task in tasks)
    return HeldoutResult(
        task_digest(tasks),
        tuple(episodes),
        retry(make_env).auxiliary_names,
        names if any(names) else (),
    )


def task_digest(tasks: Sequence[Task]) -> str:
    """Return the sha256 of the task ids in order."""
    return hashlib.sha256("\n".join(task.task_id for task in tasks).encode()).hexdigest()
