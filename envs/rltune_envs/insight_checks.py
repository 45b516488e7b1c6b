"""The part of the contract about insight: distance to go, and what a perfect player would say.

An environment is asked for the one of the two that it has, and a state whose search takes too long
(`SearchLimitError`) is skipped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import TypeVar

from rltune_envs.base import FailureClass, GoldResponse, Step, TextEnv
from rltune_envs.check_player import Player
from rltune_envs.errors import SearchLimitError
from rltune_envs.protocols import HasDistance, HasExpert, HasGoldResponse, require, supports
from rltune_envs.record_checks import broken

T = TypeVar("T")


class _Unknown(Enum):
    UNKNOWN = "unknown"


_UNKNOWN = _Unknown.UNKNOWN


@dataclass(frozen=True, slots=True)
class _Insight:
    """An environment's knowledge about its present state."""

    distance: int | _Unknown | None
    gold: GoldResponse | _Unknown | None

    @property
    def is_lost(self) -> bool:
        return self.distance is None


def check_insight(player: Player, seed: int, other: int) -> None:
    """Ask after every turn of a mixed episode and of the expert's, and play each gold response."""
    env = player.make_env()
    env.reset(seed=seed)
    start = _insight(env, seed)
    difficulty = env.task(seed).difficulty
    is_counted = env.difficulty_unit == "actions" and difficulty is not None
    if is_counted and start.distance not in (_UNKNOWN, difficulty):
        detail = f"it is {start.distance}, not {difficulty}"
        raise broken("distance_to_go begins at the difficulty", seed, detail)
    _check_mixed(player, seed)
    if supports(env, HasExpert):
        _check_expert(player, seed)


def _check_mixed(player: Player, seed: int) -> None:
    """Check what holds whatever is played, and that nobody notices the questions."""
    env = player.make_env()
    observation, steps = env.reset(seed=seed), []
    insights = [_insight(env, seed)]
    for step in player.steps(env, seed):
        steps.append(step)
        insights.append(_insight(env, seed))
    if (observation, tuple(steps)) != player.play_alone(seed):
        raise broken("asking changes nothing", seed, "an episode went on otherwise after questions")
    for (before, after), step in zip(pairwise(insights), steps, strict=True):
        _check_turn(env, before, step, after, seed)


def _check_turn(env: TextEnv, before: _Insight, step: Step, after: _Insight, seed: int) -> None:
    now = after.distance
    if step.has_ended and isinstance(after.gold, GoldResponse):
        detail = f"it is {after.gold}"
        raise broken("after the end there is no gold_response", seed, detail)
    if now is _UNKNOWN:
        return
    if (now == 0) != step.success:
        detail = f"it is {now} and success is {step.success}"
        raise broken("distance_to_go is 0 exactly when the task is solved", seed, detail)
    if not after.is_lost and (before.is_lost or step.failure_class is FailureClass.LOST):
        detail = f"it is {now} where no solution was left"
        raise broken("what is lost stays lost", seed, detail)
    if not env.is_deterministic or env.difficulty_unit != "actions":
        return
    was = before.distance
    if isinstance(was, int) and isinstance(now, int) and was - now > len(step.actions):
        detail = f"it fell from {was} to {now} in {len(step.actions)} actions"
        raise broken("distance_to_go falls by one an action at most", seed, detail)


def _check_expert(player: Player, seed: int) -> None:
    """Check that the expert comes nearer with every action, and that gold responses do."""
    env = player.make_env()
    env.reset(seed=seed)
    expert, responses = require(env, HasExpert), list[str]()
    for _ in range(player.max_turns):
        before, actions = _insight(env, seed), expert.expert_actions()
        if not actions:
            if isinstance(before.gold, GoldResponse):
                detail = f"it is {before.gold} where the expert gives up"
                raise broken("gold_response is None where nothing helps", seed, detail)
            return
        response = expert.format_response(actions)
        step = env.step(response)
        _check_approach(env, before, step, _insight(env, seed), seed)
        _check_golds(player, before, responses, step, seed)
        if step.has_ended:
            return
        responses.append(response)


def _check_approach(env: TextEnv, before: _Insight, step: Step, after: _Insight, seed: int) -> None:
    _check_turn(env, before, step, after, seed)
    if not env.is_deterministic or not isinstance(before.distance, int):
        return
    if after.distance is _UNKNOWN:
        return
    detail = f"it went from {before.distance} to {after.distance} with {step.actions!r}"
    if env.difficulty_unit != "actions":
        if after.distance is None or after.distance > before.distance:
            raise broken("distance_to_go does not rise under the expert", seed, detail)
    elif after.distance != before.distance - len(step.actions):
        raise broken("distance_to_go falls by what the expert executes", seed, detail)


def _check_golds(
    player: Player, before: _Insight, responses: Sequence[str], expert: Step, seed: int
) -> None:
    """Give each gold response in the state that the expert's responses lead to."""
    if before.gold is _UNKNOWN:
        return
    if before.gold is None:
        detail = f"it is None where the expert does {expert.actions!r}"
        raise broken("there is a gold_response where the expert goes on", seed, detail)
    golds = before.gold.golds
    steps = [_play_gold(player, before, responses, text, seed) for text in before.gold.texts]
    outcomes = [(step.reward, step.success, step.terminated) for step in steps]
    if len(set(outcomes)) > 1:
        detail = f"{golds!r} led to {outcomes!r}"
        raise broken("all forms of a gold_response are worth the same", seed, detail)
    is_counted = player.make_env().difficulty_unit == "actions"
    if is_counted and steps[0].actions != expert.actions:
        detail = f"it executes {steps[0].actions!r} where the expert does {expert.actions!r}"
        raise broken("gold_response does what the expert does", seed, detail)


def _play_gold(
    player: Player, before: _Insight, responses: Sequence[str], text: str, seed: int
) -> Step:
    """Play the responses, then check a gold response, whose text has no prefix."""
    env = player.make_env()
    env.reset(seed=seed)
    for response in responses:
        env.step(response)
    step = env.step(env.response_prefix + text)
    if not step.is_valid or not step.actions or step.n_over_limit:
        raise broken("gold_response is well formed", seed, f"{text!r} became {step}")
    after = _insight(env, seed).distance
    if not env.is_deterministic or not isinstance(before.distance, int) or after is _UNKNOWN:
        return step
    if after is None or after >= before.distance:
        detail = f"distance_to_go went from {before.distance} to {after} with {text!r}"
        raise broken("gold_response comes nearer", seed, detail)
    return step


def _insight(env: TextEnv, seed: int) -> _Insight:
    """Ask twice for both, and check their types."""
    insight, again = (_Insight(_distance(env), _gold(env)) for _ in range(2))
    if insight != again:
        raise broken("asking changes nothing", seed, f"{insight} became {again}")
    distance, gold = insight.distance, insight.gold
    if not (distance is _UNKNOWN or distance is None or (type(distance) is int and distance >= 0)):
        detail = f"it is {distance!r}; give an int from 0, or None"
        raise broken("distance_to_go is a count or None", seed, detail)
    if not (gold is _UNKNOWN or gold is None or _is_gold(gold)):
        detail = f"it is {gold!r}; give a GoldResponse of texts with one gold or more, or None"
        raise broken("gold_response is a GoldResponse or None", seed, detail)
    return insight


def _is_gold(gold: object) -> bool:
    if type(gold) is not GoldResponse or type(gold.golds) is not tuple or not gold.golds:
        return False
    texts = (gold.before, gold.after, *gold.golds)
    is_distinct = len(set(gold.golds)) == len(gold.golds)
    return is_distinct and all(type(text) is str for text in texts) and all(gold.golds)


def _distance(env: TextEnv) -> int | _Unknown | None:
    return _asked(env.distance_to_go) if supports(env, HasDistance) else _UNKNOWN


def _gold(env: TextEnv) -> GoldResponse | _Unknown | None:
    return _asked(env.gold_response) if supports(env, HasGoldResponse) else _UNKNOWN


def _asked(question: Callable[[], T]) -> T | _Unknown:
    try:
        return question()
    except SearchLimitError:
        return _UNKNOWN
