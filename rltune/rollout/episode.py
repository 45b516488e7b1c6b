"""Play episodes: environments on one side, an engine on the other, token ids kept as sampled."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Protocol

from rltune.errors import DivergedError
from rltune.rollout.engine import Completion, Engine, Request, SamplingParams
from rltune.rollout.pool import Pool
from rltune.types import Distance, Episode, StopReason, Turn
from rltune_envs.base import FailureClass, GoldResponse, Step, Task, TextEnv
from rltune_envs.errors import CustomCodeError, EnvError, SearchLimitError
from rltune_envs.guard_batch import new_batch
from rltune_envs.protocols import HasDistance, HasGoldResponse, require


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


_UNKNOWN = -1  # a distance that takes too long to find out


@dataclass(slots=True)
class _Play:
    """An episode that is not over yet."""

    slot: Slot
    env: TextEnv
    observation: str
    prompt_ids: list[int]
    probes: Probes
    context: list[int] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    last: Step | None = None
    is_out_of_context: bool = False

    @property
    def is_over(self) -> bool:
        ended = self.last is not None and self.last.has_ended
        return ended or self.is_out_of_context


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
    """Play all slots to their end, turn by turn in one batch; return episodes in slot order.

    Up to `workers` environments step at a time; the number changes no result.

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
        plays = {index: play for index, play in enumerate(begun) if isinstance(play, _Play)}
        while live := {index: play for index, play in plays.items() if not play.is_over}:
            requests = [
                Request(index, [*play.context, *play.prompt_ids], play.slot.seed)
                for index, play in live.items()
            ]
            completions = engine.generate(requests, params)
            _advance(live, dict(zip(live, completions, strict=True)), renderer, pool)
    return [_finish(play) if isinstance(play, _Play) else play for play in begun]


def _begin(
    slots: Sequence[Slot],
    make_env: Callable[[], TextEnv],
    renderer: Renderer,
    probes: Probes,
    pool: Pool,
) -> list[_Play | Episode]:
    """Begin all episodes; one that cannot begin is returned whole, with its fault."""
    starts = {index: partial(_start, slot, make_env) for index, slot in enumerate(slots)}
    started: list[_Start | CustomCodeError] = []
    for some in _first_alone(starts):
        started += pool.run(some).values()
    return [
        _unplayed(slot, str(start))
        if isinstance(start, CustomCodeError)
        else _opened(slot, start, renderer, probes)
        for slot, start in zip(slots, started, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Start:
    """An environment, and what it says first."""

    env: TextEnv
    observation: str


_Starts = Mapping[int, Callable[[], _Start | CustomCodeError]]


def _first_alone(starts: _Starts) -> list[_Starts]:
    """Return the first start, and the others: what environments share is made by one, not by all.

    An index of a million passages, for one.
    """
    return [dict(islice(starts.items(), 1)), dict(islice(starts.items(), 1, None))]


def _start(slot: Slot, make_env: Callable[[], TextEnv]) -> _Start | CustomCodeError:
    try:
        env = make_env()
        env.noise_seed = slot.noise_seed
        return _Start(env, env.reset(seed=slot.task.seed))
    except CustomCodeError as error:
        return error


def _opened(slot: Slot, start: _Start, renderer: Renderer, probes: Probes) -> _Play:
    env, observation = start.env, start.observation
    prompt = renderer.first(env.system_prompt, observation, env.response_prefix)
    return _Play(slot, env, observation, prompt, probes)


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


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What an environment made of a response."""

    step: Step
    gold: GoldResponse | None = None
    distance: Distance | None = None


def _advance(
    live: Mapping[int, _Play],
    completions: Mapping[int, Completion],
    renderer: Renderer,
    pool: Pool,
) -> None:
    """Play one turn of all episodes that are not over."""
    responses: dict[int, str] = {}
    for index, play in live.items():
        if completions[index].stop_reason is StopReason.CONTEXT:
            play.is_out_of_context = True
            continue
        _require_sample(completions[index], play)
        text = renderer.decode(completions[index].token_ids)
        responses[index] = play.env.response_prefix + text
    asked = {index: partial(_outcome, live[index], text) for index, text in responses.items()}
    for index, outcome in pool.run(asked).items():
        if isinstance(outcome, CustomCodeError):
            outcome = _Outcome(_fault(str(outcome)))
        _record(live[index], completions[index], responses[index], outcome, renderer)


def _outcome(play: _Play, response: str) -> _Outcome:
    try:
        gold = _gold(play)
        step, distance = _step(play, response)
    except CustomCodeError as error:
        return _Outcome(_fault(str(error)))
    return _Outcome(step, gold, distance)


def _record(
    play: _Play, completion: Completion, response: str, outcome: _Outcome, renderer: Renderer
) -> None:
    step = outcome.step
    _require_finite(step, play)
    play.turns.append(
        Turn(
            prompt_ids=tuple(play.prompt_ids),
            sampled_ids=completion.token_ids,
            logprobs=completion.logprobs,
            stop_reason=completion.stop_reason,
            observation=play.observation,
            response=response,
            actions=step.actions,
            reward=step.reward,
            is_valid=step.is_valid,
            n_invalid=step.n_invalid,
            n_over_limit=step.n_over_limit,
            fault=step.fault,
            distance=outcome.distance,
            gold=outcome.gold,
        )
    )
    play.context += [*play.prompt_ids, *completion.token_ids]
    play.last = step
    play.observation = step.observation
    if not play.is_over:
        play.prompt_ids = renderer.following(
            step.observation,
            play.env.response_prefix,
            is_ended=completion.stop_reason is StopReason.STOP,
        )


def _fault(reason: str) -> Step:
    """Return the step of a turn in which the environment failed; it ends the episode."""
    return Step("", 0.0, False, True, False, failure_class=FailureClass.FAULT, fault=reason)


def _gold(play: _Play) -> GoldResponse | None:
    """Return what a perfect player would say; None where it is not asked for or takes too long."""
    if not play.probes.gold:
        return None
    try:
        return require(play.env, HasGoldResponse).gold_response() or GoldResponse("", (), "")
    except SearchLimitError:
        return None


def _step(play: _Play, response: str) -> tuple[Step, Distance | None]:
    """Step, and return the distances around it; None likewise."""
    if not play.probes.distance:
        return play.env.step(response), None
    before = _distance(play.env)
    step = play.env.step(response)
    after = _distance(play.env)
    if _UNKNOWN in (before, after):
        return step, None
    return step, Distance(before, after)


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


def _distance(env: TextEnv) -> int | None:
    try:
        return require(env, HasDistance).distance_to_go()
    except SearchLimitError:
        return _UNKNOWN


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
