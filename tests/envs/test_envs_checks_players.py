"""The contract checker names the clause about responses or players that is broken."""

import random
import re
from dataclasses import replace

import pytest

from rltune_envs.base import FailureClass
from rltune_envs.checks import check_env
from rltune_envs.errors import ContractError
from tests.coin_env import COINS, CoinEnv


def is_over(step):
    return step.terminated or step.truncated


def raising(bad):
    class Raises(CoinEnv):
        def step(self, response):
            if response == bad:
                raise KeyError(response)
            return super().step(response)

    return Raises


class RaisesOnLength(CoinEnv):
    def step(self, response):
        if len(response) > 100_000:
            raise MemoryError
        return super().step(response)


class FormatsOneOnly(CoinEnv):
    def format_response(self, actions):
        (name,) = actions
        return super().format_response([name])


class GuessesTheAction(CoinEnv):
    """Executes something when nothing can be read."""

    def step(self, response):
        return super().step(response if "answer" in response else "<answer>One</answer>")


class MovesSecretly(CoinEnv):
    """Moves on nonsense, and denies it."""

    def step(self, response):
        step = super().step(response)
        self.left += not step.is_valid and not is_over(step)
        return step


class LosesOnNonsense(CoinEnv):
    def step(self, response):
        step = super().step(response)
        if step.is_valid or is_over(step):
            return step
        self.last = replace(
            step, terminated=True, failure_class=FailureClass.LOST, auxiliary={"left": 1.0}
        )
        return self.last


class ExpertGivesUp(CoinEnv):
    def expert_actions(self):
        return None if self.left == 2 else super().expert_actions()


class ExpertIsSlow(CoinEnv):
    """Needs more coins than there are turns."""

    def expert_actions(self):
        return ("One",)


class DifficultyIsTooLow(CoinEnv):
    def task(self, seed):
        task = super().task(seed)
        return replace(task, difficulty=max(1, task.difficulty - 1))


class ExpertAsksTooMuch(CoinEnv):
    def expert_actions(self):
        actions = super().expert_actions()
        return actions and actions * 2


class RandomAsksTooMuch(CoinEnv):
    def random_actions(self, rng):
        return super().random_actions(rng) * 2


class ExecutesOverTheLimit(CoinEnv):
    """Says that a name was over the limit although it was executed."""

    def step(self, response):
        return replace(super().step(response), n_over_limit=1)


class RandomIsMalformed(CoinEnv):
    def random_actions(self, rng):
        return ("Ten",)


class RandomHasAMind(CoinEnv):
    calls = 0

    def random_actions(self, rng):
        self.calls += 1
        return (tuple(COINS)[self.calls % 3],)


class FloorIsTooLow(CoinEnv):
    """Twice as many of 512 random episodes succeed."""

    def random_success_probability(self, seed):
        return super().random_success_probability(seed) / 2


class CeilingIsTooLow(CoinEnv):
    """38.4 +- 4 x 3.9 of 64 tasks would be solved; the expert solves all."""

    def optimal_success_probability(self, seed):
        return 0.6


class FormatsANameWrongly(CoinEnv):
    def format_response(self, actions):
        return super().format_response(actions).replace("Two", "One")


RESPONSES = [
    (raising(" \n\t"), "a bad response never raises"),
    (raising("<search></search>"), "a bad response never raises"),
    (RaisesOnLength, "a bad response never raises"),
    (FormatsOneOnly, "format_response writes any number of actions"),
    (GuessesTheAction, "a response without an answer is invalid and does nothing"),
    (MovesSecretly, "a response without an answer is invalid and does nothing"),
    (LosesOnNonsense, "a response without an answer is invalid and does nothing"),
    (type("PrefixMissing", (CoinEnv,), {"response_prefix": "<think>"}),
     "format_response starts with response_prefix"),
    (FormatsANameWrongly, "format_response comes back from step"),
    (type("NothingToSay", (CoinEnv,), {"shortest_responses": lambda self: ("<answer></answer>",)}),
     "shortest_responses are well formed"),
    (type("NoTag", (CoinEnv,), {"shortest_responses": lambda self: ("One</answer>",)}),
     "shortest_responses start with response_prefix"),
    (RandomIsMalformed, "format_response comes back from step"),
    (RandomHasAMind, "random_actions follows from rng"),
]  # fmt: skip
PLAYERS = [
    (ExpertGivesUp, "the expert solves every task"),
    (ExpertIsSlow, "the expert solves every task"),
    (DifficultyIsTooLow, "the expert needs exactly the difficulty in actions"),
    (ExpertAsksTooMuch, "format_response comes back from step"),
    (RandomAsksTooMuch, "format_response comes back from step"),
    (ExecutesOverTheLimit, "the players stay within the limits of a turn"),
    (FloorIsTooLow, "random_success_probability agrees with random play"),
    (CeilingIsTooLow, "optimal_success_probability agrees with the expert"),
]
CASES = (*RESPONSES, *PLAYERS)


@pytest.mark.parametrize(
    ("env", "clause"), CASES, ids=[f"{env.__name__}-{i}" for i, (env, _) in enumerate(CASES)]
)
def test_a_broken_environment_is_named(env, clause):
    with pytest.raises(ContractError, match=rf"^{re.escape(clause)}: with seed \d+, "):
        check_env(env, seeds=range(64), max_turns=50)


def test_a_player_that_draws_from_the_global_generator_is_found():
    class Draws(CoinEnv):
        def random_actions(self, rng):
            return (random.choice(tuple(COINS)),)

    with pytest.raises(ContractError, match=r"^(threads|reset|global)"):
        check_env(Draws, seeds=range(20))
