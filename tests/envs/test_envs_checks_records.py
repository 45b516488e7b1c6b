"""The contract checker names the clause that a wrong record breaks: steps, tasks, and the rest."""

import hashlib
import math
import re
from dataclasses import replace

import pytest

from rltune_envs.base import FailureClass, Step
from rltune_envs.checks import check_env
from rltune_envs.errors import ContractError
from tests.coin_env import CoinEnv

TYPES = "types are as declared"


def is_over(step):
    return step.terminated or step.truncated


def having(**attributes):
    """Make an environment with other attributes or methods."""
    return type("Changed", (CoinEnv,), attributes)


def steps(change, *, where=lambda step: True):
    """Make an environment of which some steps are changed on their way out."""

    class Changed(CoinEnv):
        def step(self, response):
            step = super().step(response)
            return change(step) if where(step) else step

    return Changed


def every(**changes):
    return steps(lambda step: replace(step, **changes))


def at_end(**changes):
    return steps(lambda step: replace(step, **changes), where=is_over)


def before_end(**changes):
    return steps(lambda step: replace(step, **changes), where=lambda step: not is_over(step))


def on_success(**changes):
    return steps(lambda step: replace(step, **changes), where=lambda step: step.success)


def on_loss(**changes):
    lost = FailureClass.LOST
    return steps(
        lambda step: replace(step, **changes), where=lambda step: step.failure_class is lost
    )


def when_late(**changes):
    return steps(lambda step: replace(step, **changes), where=lambda step: step.truncated)


def tasks(change):
    """Make an environment whose tasks are changed; `change` sees the task and its amount."""

    class Changed(CoinEnv):
        def task(self, seed):
            return change(super().task(seed), self._amount(seed))

    return Changed


def every_task(**changes):
    return tasks(lambda task, amount: replace(task, **changes))


class SubclassedStep(Step):
    pass


def subclass(step):
    return SubclassedStep(step.observation, step.reward, False, False, False)


def named_by_seed(task, amount):
    return replace(task, task_id=f"pay-{task.seed}")


def near_by_seed(task, amount):
    return replace(task, near_hash=hashlib.sha256(str(task.seed).encode()).hexdigest())


STEPS = {  # what is wrong: (environment, the clause that its error names)
    "reward is an int": (every(reward=0), TYPES),
    "actions are a list": (every(actions=[]), TYPES),
    "the class is a string": (at_end(failure_class="lost"), TYPES),
    "measures are no dict": (at_end(auxiliary=[("left", 1.0)]), TYPES),
    "a measure is an int": (at_end(auxiliary={"left": 1}), TYPES),
    "a key is a number": (at_end(auxiliary={1: 1.0}), TYPES),
    "fault is None": (every(fault=None), TYPES),
    "step is a subclass": (steps(subclass, where=lambda step: not is_over(step)), TYPES),
    "reward is nan": (at_end(reward=math.nan), "rewards and measures are finite"),
    "a measure is inf": (at_end(auxiliary={"left": math.inf}), "rewards and measures are finite"),
    "it ends twice": (
        at_end(terminated=True, truncated=True),
        "terminated and truncated exclude each other",
    ),
    "success is cut off": (on_success(terminated=False, truncated=True), "success ends the task"),
    "valid with a bad name": (every(is_valid=True), "is_valid means n_invalid == 0"),
    "fault has two lines": (every(fault="a\nb"), "a fault is one line"),
    "a class before the end": (
        before_end(failure_class=FailureClass.LOST),
        "failure_class belongs to the end",
    ),
    "measures before the end": (before_end(auxiliary={"x": 1.0}), "auxiliary belongs to the end"),
    "no measures": (at_end(auxiliary={}), "auxiliary has the keys auxiliary_names"),
    "a measure too many": (
        at_end(auxiliary={"left": 1.0, "x": 1.0}),
        "auxiliary has the keys auxiliary_names",
    ),
    "a fault is forgotten": (
        before_end(fault="till is down"),
        "failure_class is fault where one happened",
    ),
    "a fault is made up": (
        when_late(failure_class=FailureClass.FAULT),
        "failure_class is fault where one happened",
    ),
    "success has a class": (
        on_success(failure_class=FailureClass.WRONG),
        "failure_class is none on success only",
    ),
    "a failure has none": (
        on_loss(failure_class=FailureClass.NONE),
        "failure_class is none on success only",
    ),
    "an end is unfinished": (
        on_loss(failure_class=FailureClass.UNFINISHED),
        "failure_class agrees with how it ended",
    ),
    "what was read is malformed": (
        when_late(failure_class=FailureClass.MALFORMED, is_valid=True, n_invalid=0),
        "failure_class agrees with how it ended",
    ),
}

TASKS = {
    "no text": (every_task(task_id=1), TYPES),
    "facts are no dict": (every_task(facts=()), TYPES),
    "another seed": (
        tasks(lambda task, amount: replace(task, seed=task.seed + 1)),
        "task(seed) describes that seed",
    ),
    "nothing to do": (every_task(difficulty=0), "no task is solved before it starts"),
    "hash is short": (every_task(content_hash="abc"), "hashes are sha256"),
    "near hash is empty": (every_task(near_hash=""), "hashes are sha256"),
    "a fact is a tuple": (every_task(facts={"x": (1, 2)}), "facts are plain JSON values"),
    "a fact is nan": (every_task(facts={"x": math.nan}), "facts are plain JSON values"),
    "one name for all": (every_task(task_id="pay"), "task_id names the content"),
    "names of the seed": (tasks(named_by_seed), "task_id names the content"),
    "near by seed": (tasks(near_by_seed), "equal tasks are near each other and equally hard"),
}


class HarderByTheWeek(CoinEnv):
    """The same amount is as hard as the seed; in a unit that no expert is measured in."""

    difficulty_unit = "weeks"

    def task(self, seed):
        return replace(super().task(seed), difficulty=1 + seed)


OTHERS = {
    "text is bytes": (having(system_prompt=b"x"), TYPES),
    "the unit is no text": (having(difficulty_unit=None), TYPES),
    "determinism is no bool": (having(is_deterministic=1), TYPES),
    "measure names are a list": (having(auxiliary_names=["left"]), TYPES),
    "a measure is named twice": (having(auxiliary_names=("left", "left")), TYPES),
    "no random actions": (having(random_actions=lambda self, rng: ()), TYPES),
    "expert gives a list": (having(expert_actions=lambda self: ["One"]), TYPES),
    "floor above 1": (
        having(random_success_probability=lambda self, seed: 1.5),
        "floor and ceiling are probabilities",
    ),
    "ceiling is an int": (
        having(optimal_success_probability=lambda self, seed: 1),
        "floor and ceiling are probabilities",
    ),
    "floor above the ceiling": (
        having(optimal_success_probability=lambda self, seed: 0.001),
        "nobody beats a perfect player",
    ),
    "gold is no dict": (having(gold=lambda self, seed: ["x"]), "gold is plain JSON"),
    "gold holds a tuple": (having(gold=lambda self, seed: {"x": (1, 2)}), "gold is plain JSON"),
    "gold holds nan": (having(gold=lambda self, seed: {"x": math.nan}), "gold is plain JSON"),
    "gold holds inf": (having(gold=lambda self, seed: {"x": math.inf}), "gold is plain JSON"),
    "gold holds a set": (having(gold=lambda self, seed: {"x": {1}}), "gold is plain JSON"),
    "equal tasks differ": (HarderByTheWeek, "equal tasks are near each other and equally hard"),
}


@pytest.mark.parametrize(
    ("env", "clause"),
    [
        pytest.param(*case, id=f"{kind}: {name}")
        for kind, cases in (("step", STEPS), ("task", TASKS), ("env", OTHERS))
        for name, case in cases.items()
    ],
)
def test_a_wrong_record_is_named(env, clause):
    with pytest.raises(ContractError, match=rf"^{re.escape(clause)}: with seed \d+, "):
        check_env(env, seeds=range(24), max_turns=50)
