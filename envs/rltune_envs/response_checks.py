"""The part of the contract about responses: bad ones do no harm, good ones are understood."""

import random

from rltune_envs.base import Step, TextEnv
from rltune_envs.check_player import Player, expert_of
from rltune_envs.protocols import (
    HasRandomPlayer,
    HasShortestResponses,
    WritesActions,
    require,
    supports,
)
from rltune_envs.record_checks import broken, require_step

NONSENSE = (  # without a complete answer or search: nothing may be executed
    "", " \n\t", "\x00", "<answer>", "</answer>", "<search>", "</search>", "<think>",
    "</think><answer>", "</answer><answer>", "</search><search>", "<search>x</answer>",
    "<think></think><search>", "｜｜", "🙂" * 500, "\ud800", "İ\u202eمرحبا", "||" * 500,
    "x" * 100_000, "<think>" * 14_000, "<search>" * 12_000, "<think></think> " * 6_000,
)  # fmt: skip
FUZZ = (  # with an answer or search that is empty, strange or only partly closed
    "<answer></answer>", "<answer>||</answer>", "<answer>\x00</answer>", "<answer>No such</answer>",
    "<think></think><answer>｜｜</answer>", "<think></think><answer>||||</answer><answer>",
    "<answer>" + "||" * 30_000 + "</answer>",
    "<think>" * 4_000 + "</think><answer>" * 4_000 + "</answer>",
    "<search></search>", "<search>\x00</search>", "<think></think><search> \n</search>",
    "<think></think><search>\ud800</search>", "<search>" + "x " * 30_000 + "</search>",
    "<think></think><search>x</search><answer>x</answer>" * 2_000,
)  # fmt: skip
_MANY = 5_000


def check_bad_responses(player: Player, seed: int, other: int) -> None:
    """Give each bad response as the first one of an episode.

    Only where actions have a form is a response without one invalid; elsewhere any text is one.
    """
    env = player.make_env()
    env.reset(seed=seed)
    spoilt = _spoilt(env, seed) if supports(env, HasRandomPlayer) else ()
    has_form = supports(env, WritesActions)
    for response in (*NONSENSE, *FUZZ, *spoilt):
        env.reset(seed=seed)
        expert = expert_of(env)
        try:
            step = env.step(response)
        except Exception as error:
            detail = f"{response[:40]!r} raised {error!r}"
            raise broken("a bad response never raises", seed, detail) from error
        require_step(step, seed)
        if has_form and response in NONSENSE and not _is_idle(env, step, expert):
            raise broken(
                "a response without an answer is invalid and does nothing",
                seed,
                f"{response[:40]!r} led to {step}",
            )


def _spoilt(env: TextEnv, seed: int) -> tuple[str, ...]:
    """Return a good response cut, and repeated far beyond all limits."""
    player = require(env, HasRandomPlayer)
    actions = player.random_actions(random.Random(seed))
    good = player.format_response(actions)
    try:
        too_many = player.format_response(actions * _MANY)
    except Exception as error:
        detail = f"{_MANY} actions raised {error!r}; write them, and let step count the surplus"
        raise broken("format_response writes any number of actions", seed, detail) from error
    cut = (good[:-1], good[: len(good) // 2], good[1:])
    return (*cut, good * _MANY, "||".join(actions * _MANY), too_many)


def _is_idle(env: TextEnv, step: Step, expert: tuple[str, ...] | None) -> bool:
    """Return whether nothing happened, except that a turn has passed.

    The expert shows state that no field of a step does. With a turn less it may give up, and where
    luck matters it may play safer.
    """
    if step.is_valid or step.actions or step.terminated:
        return False
    return not env.is_deterministic or expert_of(env) in (expert, None)


def check_format(player: Player, seed: int, other: int) -> None:
    """Play the random player: its responses must be understood whole, and follow from its rng."""
    env = player.make_env()
    env.reset(seed=seed)
    players = require(env, HasRandomPlayer)
    for index in range(4):
        actions = players.random_actions(random.Random(index))
        if players.random_actions(random.Random(index)) != actions:
            detail = f"{actions!r} came for one rng, something else for an equal one"
            raise broken("random_actions follows from rng", seed, detail)
        response = players.format_response(actions)
        if not response.startswith(env.response_prefix):
            detail = f"{response!r} does not start with {env.response_prefix!r}"
            raise broken("format_response starts with response_prefix", seed, detail)
        require_understood(env.step(response), actions, seed)
        env.reset(seed=seed)


def check_shortest(player: Player, seed: int, other: int) -> None:
    """Give each of the shortest responses as the first one of an episode: all must be valid."""
    env = player.make_env()
    for response in require(env, HasShortestResponses).shortest_responses():
        env.reset(seed=seed)
        if not response.startswith(env.response_prefix):
            detail = f"{response!r} does not start with {env.response_prefix!r}"
            raise broken("shortest_responses start with response_prefix", seed, detail)
        step = env.step(response)
        if not (step.is_valid or step.fault):
            detail = f"{response!r} led to {step}"
            raise broken("shortest_responses are well formed", seed, detail)


def require_understood(step: Step, actions: tuple[str, ...], seed: int) -> None:
    """Check that a step executed what was formatted, up to where the episode ended."""
    n_executed = len(step.actions)
    is_whole = n_executed == len(actions) or step.terminated
    if actions[:n_executed] != step.actions or not is_whole or not step.is_valid:
        raise broken("format_response comes back from step", seed, f"{actions!r} became {step}")
    if step.n_over_limit:
        detail = f"{actions!r} are {step.n_over_limit} more than a turn allows"
        raise broken("the players stay within the limits of a turn", seed, detail)
