"""The contract checker passes an honest environment and names the clause a broken one breaks."""

import hashlib
import math
import random
import re
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from rltune_envs.base import Step, Task, TextEnv
from rltune_envs.checks import FUZZ, NONSENSE, check_env
from rltune_envs.errors import ContractError
from rltune_envs.parse import parse_actions


class Countdown(TextEnv):
    """Bring a number from 1..6 to zero: `Dec` lowers it, `Inc` raises it. Four turns of two."""

    def __init__(self):
        self.number = self.turns = 0
        self.last = None

    system_prompt = ""
    response_prefix = "<answer>"
    action_names = ("Dec", "Inc")

    def first(self, seed):
        return random.Random(seed).randrange(1, 7)

    def reset(self, *, seed):
        self.number, self.turns, self.last = self.first(seed), 0, None
        return str(self.number)

    def step(self, response):
        if self.last is not None and (self.last.terminated or self.last.truncated):
            return self.after_end()
        parsed = parse_actions(response, names=self.action_names, limit=2, needs_think=False)
        executed = []
        for name in parsed.actions:
            self.number += 1 if name == "Inc" else -1
            executed.append(name)
            if self.number == 0:
                break
        self.turns += 1
        is_solved = self.number == 0
        self.last = Step(
            str(self.number), float(is_solved), is_solved, self.turns == 4 and not is_solved,
            is_solved, tuple(executed), parsed.is_valid, parsed.n_invalid, parsed.n_over_limit,
        )  # fmt: skip
        return self.last

    def after_end(self):
        return replace(self.last, reward=0.0, actions=(), is_valid=True, n_invalid=0)

    def task(self, seed):
        digest = hashlib.sha256(str(self.first(seed)).encode()).hexdigest()
        return Task(f"countdown-{self.first(seed)}", seed, digest, self.first(seed))

    def format_response(self, actions):
        return f"<answer>{'||'.join(actions)}</answer>"

    def expert_actions(self):
        return ("Dec",) * min(2, self.number)

    def random_success_probability(self, seed):
        return 0.5


def test_an_honest_environment_passes():
    check_env(Countdown, seeds=range(20))


class TextIsBytes(Countdown):
    def reset(self, *, seed):
        return super().reset(seed=seed).encode()


class RewardIsInt(Countdown):
    def step(self, response):
        step = super().step(response)
        return replace(step, reward=int(step.reward))


class ActionsAreAList(Countdown):
    def step(self, response):
        step = super().step(response)
        return replace(step, actions=list(step.actions))


class StepIsATuple(Countdown):
    def step(self, response):
        step = super().step(response)
        if step.terminated or step.truncated:
            return step
        return SubclassedStep(step.observation, 0.0, False, False, False)


class SubclassedStep(Step):
    pass


class NamesRepeat(Countdown):
    action_names = ("Dec", "Inc", "Dec")


class FloorAboveOne(Countdown):
    def random_success_probability(self, seed):
        return 1.5


class RewardIsNan(Countdown):
    def step(self, response):
        step = super().step(response)
        return replace(step, reward=math.nan) if step.truncated else step


class BothEnds(Countdown):
    def step(self, response):
        step = super().step(response)
        return replace(step, truncated=True) if step.success else step


class SuccessGoesOn(Countdown):
    def step(self, response):
        step = super().step(response)
        return replace(step, terminated=False, truncated=True) if step.success else step


class ValidWithInvalidNames(Countdown):
    def step(self, response):
        return replace(super().step(response), is_valid=True)


class NeverEnds(Countdown):
    def step(self, response):
        return replace(super().step(response), terminated=False, truncated=False, success=False)


class OwnsNoSeed(Countdown):
    def reset(self, *, seed):
        super().reset(seed=seed)
        self.number = random.Random().randrange(1, 10**9)
        return str(self.number)


class ResetForgetsTurns(Countdown):
    def reset(self, *, seed):
        turns = self.turns
        observation = super().reset(seed=seed)
        self.turns = turns if turns < 4 else 0
        return observation


class MovesGlobalState(Countdown):
    def reset(self, *, seed):
        random.seed(seed)
        return super().reset(seed=seed)


class MovesNumpyState(Countdown):
    def reset(self, *, seed):
        np.random.seed(seed % 2**32)
        return super().reset(seed=seed)


class ReadsNumpyState(Countdown):
    def reset(self, *, seed):
        return super().reset(seed=seed) + str(np.random.get_state()[1][0])


class ReadsGlobalState(Countdown):
    """Looks at the global state without moving it."""

    def reset(self, *, seed):
        observation = super().reset(seed=seed)
        return observation + str(hash(random.getstate()))


class OneBoardForAll(Countdown):
    """The running number belongs to the class, so that two environments share it."""

    numbers: list = [0]  # noqa: RUF012

    @property
    def number(self):
        return self.numbers[0]

    @number.setter
    def number(self, value):
        self.numbers[0] = value


class SeesOtherThreads(Countdown):
    """Behaves in one thread; in several, the episode depends on which."""

    def reset(self, *, seed):
        observation = super().reset(seed=seed)
        time.sleep(0.002)
        is_main = threading.current_thread() is threading.main_thread()
        return observation if is_main else observation + threading.current_thread().name


class TaskMovesTheEpisode(Countdown):
    def task(self, seed):
        self.number = self.first(seed)
        return super().task(seed)


class TaskDiffersByInstance(Countdown):
    def task(self, seed):
        return replace(super().task(seed), task_id=f"countdown-{id(self)}")


class TaskOfAnotherSeed(Countdown):
    def task(self, seed):
        return replace(super().task(seed), seed=seed + 1)


class StartsSolved(Countdown):
    def task(self, seed):
        return replace(super().task(seed), optimal_actions=0)


class NameIsShared(Countdown):
    def task(self, seed):
        return replace(super().task(seed), task_id="countdown")


class NameOfTheSeed(Countdown):
    def task(self, seed):
        return replace(super().task(seed), task_id=f"countdown-{seed}")


class PaysAfterTheEnd(Countdown):
    def after_end(self):
        return replace(super().after_end(), reward=1.0)


class MovesAfterTheEnd(Countdown):
    def after_end(self):
        self.number += 1
        return super().after_end()


class ReopensAfterTheEnd(Countdown):
    def after_end(self):
        return replace(super().after_end(), truncated=False, terminated=False, success=False)


class RaisesOnEmpty(Countdown):
    def step(self, response):
        if response == " \n\t":
            raise KeyError(response)
        return super().step(response)


class GuessesTheAction(Countdown):
    """Executes something when nothing can be read."""

    def step(self, response):
        return super().step(response if response in ("", None) or "answer" in response else BEST)


BEST = "<answer>Dec</answer>"


class ExpertGivesUp(Countdown):
    def expert_actions(self):
        return None if self.number == 2 else super().expert_actions()


class ExpertIsSlow(Countdown):
    def expert_actions(self):
        return ("Dec",)


class OptimumIsTooLong(Countdown):
    def task(self, seed):
        return replace(super().task(seed), optimal_actions=self.first(seed) + 1)


class ExpertAsksTooMuch(Countdown):
    def expert_actions(self):
        return ("Dec",) * self.number


class PrefixMissing(Countdown):
    response_prefix = "<think>"


class FormatsANameWrongly(Countdown):
    def format_response(self, actions):
        return super().format_response(actions).replace("Inc", "Dec")


BROKEN = [  # (environment, the clause that its error names)
    (TextIsBytes, "types are as declared"),
    (RewardIsInt, "types are as declared"),
    (ActionsAreAList, "types are as declared"),
    (StepIsATuple, "types are as declared"),
    (NamesRepeat, "types are as declared"),
    (FloorAboveOne, "the random floor is a probability"),
    (RewardIsNan, "rewards are finite"),
    (BothEnds, "terminated and truncated exclude each other"),
    (SuccessGoesOn, "success ends the task"),
    (ValidWithInvalidNames, "is_valid means n_invalid == 0"),
    (NeverEnds, "every episode ends"),
    (OwnsNoSeed, "threads do not change an episode"),
    (ResetForgetsTurns, "reset(seed) decides the episode"),
    (MovesGlobalState, "global random state is left alone"),
    (MovesNumpyState, "global random state is left alone"),
    (ReadsNumpyState, "reset(seed) is the only randomness"),
    (ReadsGlobalState, "reset(seed) is the only randomness"),
    (OneBoardForAll, "environments share no state"),
    (SeesOtherThreads, "threads do not change an episode"),
    (TaskMovesTheEpisode, "asking about a task leaves the episode alone"),
    (TaskDiffersByInstance, "task(seed) is a function of the seed"),
    (TaskOfAnotherSeed, "task(seed) describes that seed"),
    (StartsSolved, "no task is solved before it starts"),
    (NameIsShared, "task_id names the content"),
    (NameOfTheSeed, "task_id names the content"),
    (PaysAfterTheEnd, "a step after the end earns nothing"),
    (MovesAfterTheEnd, "a step after the end changes nothing"),
    (ReopensAfterTheEnd, "a step after the end changes nothing"),
    (RaisesOnEmpty, "a bad response never raises"),
    (GuessesTheAction, "a response without an answer is invalid and does nothing"),
    (ExpertGivesUp, "the expert solves every task"),
    (ExpertIsSlow, "the expert solves every task"),
    (OptimumIsTooLong, "the expert needs exactly optimal_actions"),
    (ExpertAsksTooMuch, "format_response comes back from step"),
    (PrefixMissing, "format_response starts with response_prefix"),
    (FormatsANameWrongly, "format_response comes back from step"),
]


@pytest.mark.parametrize(("env", "clause"), BROKEN, ids=[env.__name__ for env, _ in BROKEN])
def test_a_broken_environment_is_named(env, clause):
    with pytest.raises(ContractError, match=rf"^{re.escape(clause)}: with seed \d+, "):
        check_env(env, seeds=range(20), max_turns=50)


def test_a_wild_generator_is_found_in_a_single_thread_too():
    with pytest.raises(ContractError, match=r"^(threads|reset)"):
        check_env(OwnsNoSeed, seeds=range(2), threads=1)


def test_the_checker_leaves_global_random_state_alone():
    state, numpy_state = random.getstate(), np.random.get_state()[1].tolist()
    check_env(Countdown, seeds=range(3))

    assert random.getstate() == state
    assert np.random.get_state()[1].tolist() == numpy_state


@pytest.mark.parametrize("seeds", [[], [3], [3, 3], [1, 2, 1]])
def test_seeds_must_be_different_ones(seeds):
    message = f"seeds are {seeds!r}; give two or more different ones"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_env(Countdown, seeds=seeds)


def test_bad_responses_cover_the_kinds_that_matter():
    bad = (*NONSENSE, *FUZZ)

    assert "" in bad
    assert any(len(text) >= 100_000 for text in bad)
    assert any(not text.isascii() for text in bad)
    assert any("\x00" in text for text in bad)
    with pytest.raises(UnicodeEncodeError):
        "".join(bad).encode()
