"""The held-out evaluation: frozen tasks, one episode each, always with the same sampling seeds."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rltune.forecast.memory import gate_at_once
from rltune.losses.kl import full_kl
from rltune.maths.streams import noise_seed, stream_seed
from rltune.policy.load import CausalLM, Policy
from rltune.policy.logprobs import action_hidden, head_chunk, head_weight
from rltune.rollout.engine import Engine, SamplingParams
from rltune.rollout.episode import Slot, play
from rltune.rollout.tokens import TokenBatch, to_batch
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.batches.micro_batches import limit_of, micro_batches
from rltune.trainer.ranks.shard import computed
from rltune.trainer.records.outcomes import (
    cut_shares,
    failure_metrics,
    outcome_metrics,
    set_metrics,
)
from rltune.trainer.tasks import workers_of
from rltune.trainer.train_state import TrainState
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


@torch.no_grad()
def start_kl(train_state: TrainState, episodes: Sequence[Episode], config: TrialConfig) -> float:
    """Return the KL of the policy to its start per token that it sampled, in nats.

    It is the mean over the sampled tokens of sum_v p_v (log p_v - log q_v), with p the policy and q
    the start, both at `rollout.temperature`: exact at each token, with no estimate's noise.
    Nothing is drawn at random, so measuring does not change a trial. NaN without a sampled token.

    Args:
        train_state: Of the policy that sampled the episodes; has its start.
        episodes: Of one evaluation; those with a fault do not count.
        config: Of the trial.

    """
    policy, temperature = train_state.policy, config.rollout.temperature
    batch = to_batch(episodes, pad_id=policy.pad_id).to(policy.model.device)
    rows = torch.arange(len(batch), device=policy.model.device)
    parts = micro_batches(batch, rows, limit_of(policy, config))
    values = [_token_kl(train_state, batch.rows(part.rows), temperature) for part in parts]
    return torch.cat(values).double().mean().item() if values else math.nan


def _token_kl(train_state: TrainState, part: TokenBatch, temperature: float) -> Tensor:
    """Return the KL of the next-token distributions at each sampled token, (M,)."""
    actor, start = train_state.actor, train_state.start
    assert start is not None

    def with_policy(model: CausalLM) -> Tensor:
        return computed(start, lambda start: _kl_between(model, start, part, temperature))

    return computed(actor, with_policy)


def _kl_between(model: CausalLM, start: CausalLM, part: TokenBatch, temperature: float) -> Tensor:
    hidden_MD, start_MD = (
        action_hidden(one.base_model, part.ids_NT, part.action_mask_NT) for one in (model, start)
    )
    head, start_head, chunk = head_weight(model).T, head_weight(start).T, head_chunk(model)
    pieces = [
        full_kl(hidden_MD[at] @ head / temperature, start_MD[at] @ start_head / temperature)
        for at in (slice(first, first + chunk) for first in range(0, len(hidden_MD), chunk))
    ]
    return torch.cat(pieces)


def task_digest(tasks: Sequence[Task]) -> str:
    """Return the sha256 of the task ids in order."""
    return hashlib.sha256("\n".join(task.task_id for task in tasks).encode()).hexdigest()
