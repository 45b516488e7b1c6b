"""Play episodes: environments on one side, an engine on the other, token ids kept as sampled."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from rltune.errors import DivergedError
from rltune.rollout.engine import Completion, Engine, Request, SamplingParams
from rltune.rollout.env_calls import Outcome, Started, first_alone, outcome_of, start
from rltune.rollout.lockstep import streaming
from rltune.rollout.pool import Pool
from rltune.rollout.turn_loop import Playing, TurnLoop
from rltune.types import Episode, StopReason, Turn
from rltune_envs.base import FailureClass, Step, Task, TextEnv
from rltune_envs.errors import CustomCodeError, EnvError
from rltune_envs.guard_batch import new_batch


class Renderer(Protocol):
    """Makes token ids from observations; `policy.render` implements it."""

    def first(self, system: str, observation: str, prefix: str) -> list[int]:
        """Return the ids of a new conversation up to the first sampled token."""

    def following(self, observation: str, prefix: str, *, is_ended: bool) -> list[int]:
        """Return the ids between a response and the next one."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of sampled ids."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One episode to play."""

    task: Task  # what to play
    group: int  # index of the prompt in this step
    member: int  # index inside the group
    seed: int  # seed of the sampling draws
    noise_seed: int = 0  # names the environment's luck in this episode


@dataclass(frozen=True, slots=True)
class Probes:
    """Extra measurements of an environment around each response."""

    # the exact distance to go; costs a search where the environment has no table
    distance: bool = False
    gold: bool = False  # what a perfect player would say


@dataclass(slots=True)
class _Play:
    """An episode that is not over yet."""

    slot: Slot
    env: TextEnv
    observation: str
    prompt_ids: list[int]
    probes: Probes
    renderer: Renderer
    context: list[int] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    last: Step | None = None
    is_out_of_context: bool = False
    _answer: tuple[Completion, str] | None = None  # what the environment is replying to

    @property
    def is_over(self) -> bool:
        ended = self.last is not None and self.last.has_ended
        return ended or self.is_out_of_context

    @property
    def n_turns(self) -> int:
        return len(self.turns)

    def request(self, conversation: int) -> Request:
        return Request(conversation, [*self.context, *self.prompt_ids], self.slot.seed)

    def answered(self, completion: Completion) -> Callable[[], Outcome] | None:
        if completion.stop_reason is StopReason.CONTEXT:
            self.is_out_of_context = True
            return None
        _require_sample(completion, self)
        response = self.env.response_prefix + self.renderer.decode(completion.token_ids)
        self._answer = completion, response
        probes = self.probes
        return partial(outcome_of, self.env, response, gold=probes.gold, distance=probes.distance)

    def observed(self, outcome: Outcome) -> None:
        if self._answer is None:
            raise ValueError("an outcome came without a response")
        (completion, response), self._answer = self._answer, None
        _require_finite(outcome.step, self)
        turn = Turn(
            prompt_ids=tuple(self.prompt_ids),
            sampled_ids=completion.token_ids,
            logprobs=completion.logprobs,
            stop_reason=completion.stop_reason,
            observation=self.observation,
            response=response,
            **_of_outcome(outcome),
        )
        self.turns.append(turn)
        self.context += [*self.prompt_ids, *completion.token_ids]
        self.last = outcome.step
        self.observation = outcome.step.observation
        if not self.is_over:
            self.prompt_ids = self.renderer.following(
                self.observation,
                self.env.response_prefix,
                is_ended=completion.stop_reason is StopReason.STOP,
            )

    def cut(self, turn: int, outcome: Outcome) -> None:
        self.turns[turn:] = [replace(self.turns[turn], **_of_outcome(outcome))]
        self.last, self.is_out_of_context = outcome.step, False


def play(
    slots: Sequence[Slot],
    *,
    make_env: Callable[[], TextEnv],
    renderer: Renderer,
    engine: Engine,
    params: SamplingParams,
    probes: Probes | None = None,
    workers: int = 1,
) -> list[Episode]:
    """Play all slots to their end; return episodes in slot order.

    Where the engine takes requests at any time, an episode goes on as soon as its environment has
    stepped; else all play turn by turn in one batch. Up to `workers` environments step at a time.
    Neither changes a result.

    Parsing happens on decoded text and decides only what the environment does: the ids that were
    sampled stay in the episode as they are, whatever the text was worth.

    Code of a user's that fails in an episode is a fault of that episode, which ends there.

    Raises:
        DivergedError: A logprob is not finite, so what was drawn is no sample of the policy.
        EnvError: A reward is not finite.

    """
    probes = probes or Probes()
    new_batch()
    with Pool(workers) as pool:
        begun = _begin(slots, make_env, renderer, probes, pool)
        plays: dict[int, Playing] = {
            number: play for number, play in enumerate(begun) if isinstance(play, _Play)
        }
        TurnLoop(plays, streaming(engine), params, pool).play()
    return [_finish(play) if isinstance(play, _Play) else play for play in begun]


def _begin(
    slots: Sequence[Slot],
    make_env: Callable[[], TextEnv],
    renderer: Renderer,
    probes: Probes,
    pool: Pool,
) -> list[_Play | Episode]:
    """Begin all episodes; one that cannot begin is returned whole, with its fault."""
    starts = {
        index: partial(start, make_env, seed=slot.task.seed, noise_seed=slot.noise_seed)
        for index, slot in enumerate(slots)
    }
    started: list[Started | CustomCodeError] = []
    for some in first_alone(starts):
        started += pool.run(some).values()
    return [
        _unplayed(slot, str(result))
        if isinstance(result, CustomCodeError)
        else _opened(slot, result, renderer, probes)
        for slot, result in zip(slots, started, strict=True)
    ]


def _opened(slot: Slot, started: Started, renderer: Renderer, probes: Probes) -> _Play:
    env, observation = started.env, started.observation
    prompt = renderer.first(env.system_prompt, observation, env.response_prefix)
    return _Play(slot, env, observation, prompt, probes, renderer)


def _unplayed(slot: Slot, fault: str) -> Episode:
    return Episode(
        task_id=slot.task.task_id,
        task_seed=slot.task.seed,
        group=slot.group,
        member=slot.member,
        turns=(),
        terminated=False,
        truncated=True,
        success=False,
        reward=0.0,
        failure_class=FailureClass.FAULT.value,
        noise_seed=slot.noise_seed,
        early_fault=fault,
    )


def _of_outcome(outcome: Outcome) -> dict[str, Any]:
    """Return the part of a turn that the environment decides."""
    step = outcome.step
    return {
        "actions": step.actions,
        "reward": step.reward,
        "is_valid": step.is_valid,
        "n_invalid": step.n_invalid,
        "n_over_limit": step.n_over_limit,
        "fault": step.fault,
        "distance": outcome.distance,
        "gold": outcome.gold,
    }


def _require_sample(completion: Completion, play: _Play) -> None:
    """Refuse tokens that were drawn from no distribution."""
    if not all(map(math.isfinite, completion.logprobs)):
        raise DivergedError(
            f"task {play.slot.task.task_id!r}, turn {len(play.turns)}: the policy's logprobs are "
            "not finite. The last checkpoint is kept; lower optim.lr, or tighten optim.grad_clip."
        )


def _require_finite(step: Step, play: _Play) -> None:
    """Refuse a reward that no mean and no loss can hold, where its origin is still known."""
    if not math.isfinite(step.reward):
        raise EnvError(
            f"the environment gave task {play.slot.task.task_id!r} (seed {play.slot.task.seed}) "
            f"the reward {step.reward!r} in turn {len(play.turns)}; a reward is a finite number. "
            "Repair its step()."
        )


def _finish(play: _Play) -> Episode:
    last = play.last
    return Episode(
        task_id=play.slot.task.task_id,
        task_seed=play.slot.task.seed,
        noise_seed=play.slot.noise_seed,
        group=play.slot.group,
        member=play.slot.member,
        turns=tuple(play.turns),
        terminated=last is not None and last.terminated,
        truncated=play.is_out_of_context or (last is not None and last.truncated),
        success=last is not None and last.success,
        reward=sum(turn.reward for turn in play.turns),
        failure_class=_failure_class(play).value,
        auxiliary=dict(last.auxiliary) if last is not None else {},
        is_out_of_context=play.is_out_of_context,
        closing=last.observation if last is not None else "",
    )


def _failure_class(play: _Play) -> FailureClass:
    """Return why an episode is no success; the environment knows, unless the context cut it."""
    if any(turn.fault for turn in play.turns):
        return FailureClass.FAULT
    if play.is_out_of_context or play.last is None:
        return FailureClass.UNFINISHED
    return play.last.failure_class
