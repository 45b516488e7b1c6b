"""FrozenLake as a text environment: contract, prompts, endings, luck."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from rltune_envs.base import FailureClass
from rltune_envs.checks import check_env
from rltune_envs.errors import EnvError
from rltune_envs.frozen_lake import FrozenLakeEnv
from rltune_envs.frozen_lake.env import _luck
from rltune_envs.splits import build_manifest

GOLDEN = Path(__file__).parents[1] / "golden" / "frozen_lake_prompts.json"


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"success_rate": 0.8},
        {"success_rate": 0.0, "prompt": "compact"},
        {"size": 7, "observation": "coord", "max_actions_per_turn": 3, "max_actions": 12},
    ],
    ids=str,
)
def test_the_contract_holds(arguments):
    check_env(lambda: FrozenLakeEnv(**arguments), seeds=range(12))


def test_prompts_are_the_golden_ones():
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    for case in golden["cases"]:
        env = FrozenLakeEnv(**case["arguments"])
        texts = [env.system_prompt, env.reset(seed=case["seed"])]
        texts += [env.step(response).observation for response in case["responses"]]
        assert texts == case["texts"]


def solved(**arguments):
    env = FrozenLakeEnv(prompt="compact", **arguments)
    env.reset(seed=3)
    while True:
        step = env.step(env.format_response(env.expert_actions()))
        if step.terminated or step.truncated:
            return step


def test_the_goal_earns_one():
    step = solved()
    assert (step.reward, step.success, step.terminated) == (1.0, True, True)
    assert step.failure_class is FailureClass.NONE
    assert "√" in step.observation


def hole_seed():
    """Return a seed with a hole right of the start."""
    for seed in range(1000):
        env = FrozenLakeEnv(prompt="compact")
        env.reset(seed=seed)
        lake = env.lake
        if lake.start % 4 < 3 and lake.is_hole(lake.start + 1):
            return seed
    raise AssertionError


def test_a_hole_loses():
    env = FrozenLakeEnv(prompt="compact")
    env.reset(seed=hole_seed())
    step = env.step("<answer>Right||Right</answer>")
    assert (step.reward, step.terminated, step.truncated) == (0.0, True, False)
    assert step.failure_class is FailureClass.LOST
    assert step.actions == ("Right",)  # nothing is executed after the fall
    assert "X" in step.observation
    assert env.expert_actions() is None


@pytest.mark.parametrize(
    ("last", "failure"),
    [("<answer>Left</answer>", FailureClass.UNFINISHED), ("?", FailureClass.MALFORMED)],
)
def test_limits_say_how_the_last_turn_was(last, failure):
    env = FrozenLakeEnv(prompt="compact", min_difficulty=4)
    env.reset(seed=0)
    for _ in range(4):
        assert env.step("nonsense").failure_class is FailureClass.NONE
    step = env.step(last)
    assert (step.truncated, step.failure_class) == (True, failure)


def test_tasks_are_the_same_at_every_slip_rate():
    calm, rough = FrozenLakeEnv(success_rate=1.0), FrozenLakeEnv(success_rate=0.5)
    assert [calm.task(seed) for seed in range(50)] == [rough.task(seed) for seed in range(50)]


def test_the_kth_step_has_its_luck_whatever_was_chosen():
    """Two members of a group walk on different ways; a step that is aimed alike slips alike."""
    luck = _luck(5, 0, 10)
    assert luck == _luck(5, 0, 10)
    assert luck[:4] == _luck(5, 0, 4)  # a longer episode does not change the first steps
    assert luck != _luck(6, 0, 10)
    assert luck != _luck(5, 1, 10)
    seen = []
    for first in ("Up", "Down"):
        env = FrozenLakeEnv(size=12, frozen_probability=1.0, success_rate=0.5, prompt="compact")
        env.reset(seed=5)
        env._cell = 6 * 12 + 6
        env.step(f"<answer>{first}</answer>")
        before = env._cell
        env.step("<answer>Right</answer>")
        seen.append(env._cell - before)
    assert seen[0] == seen[1]


def won(env, seed, noise_seed, answers):
    """Play the answers of an earlier visit, or what wins now, and return whether that wins."""
    env.noise_seed = noise_seed
    env.reset(seed=seed)
    return any(env.step(f"<answer>{answer}</answer>").success for answer in answers)


def answers_that_win(env, seed, noise_seed):
    """Search for five single steps that win with the luck of one visit; none when nothing does."""
    for answers in itertools.product(env.action_names, repeat=5):
        if won(env, seed, noise_seed, answers):
            return answers
    return ()


def test_who_knows_the_luck_of_one_visit_is_no_better_on_the_next():
    env = FrozenLakeEnv(success_rate=0.5, prompt="compact", max_actions_per_turn=1)
    seeds, visits = range(60), range(1, 21)
    ceiling = sum(map(env.optimal_success_probability, seeds)) / len(seeds)
    known = {seed: answers_that_win(env, seed, 0) for seed in seeds}

    assert ceiling < 0.7
    assert sum(won(env, seed, 0, known[seed]) for seed in seeds) > 0.9 * len(seeds)
    again = [won(env, seed, visit, known[seed]) for seed in seeds for visit in visits]
    assert sum(again) / len(again) < ceiling


def test_splits_are_disjoint_and_their_floor_does_not_depend_on_slip():
    manifests = [
        build_manifest(
            FrozenLakeEnv(success_rate=rate),
            train_tasks=200,
            heldout_tasks=100,
            test_tasks=100,
            split_seed=0,
        )
        for rate in (1.0, 0.8)
    ]
    assert manifests[0].train == manifests[1].train
    assert manifests[0].heldout_floor == manifests[1].heldout_floor
    assert manifests[0].heldout_ceiling == 1.0 > manifests[1].heldout_ceiling > 0.8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt": "terse"}, "prompt is 'terse'; choose one of natural, compact."),
        ({"observation": "map"}, "observation is 'map'; choose one of grid, coord, grid_coord."),
        (
            {"success_rate": 0.5, "max_actions_per_turn": 7},
            "max_actions_per_turn is 7; on ice that slips at most 6, so that the ceiling can be "
            "computed",
        ),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match="is") as error:
        FrozenLakeEnv(**arguments)
    assert str(error.value) == message


def test_a_lake_is_there_after_reset_only():
    with pytest.raises(EnvError, match=r"call reset\(seed=...\) first"):
        FrozenLakeEnv().lake  # noqa: B018


CODE = """
from rltune_envs.frozen_lake import FrozenLakeEnv
env = FrozenLakeEnv(success_rate=0.8, min_difficulty=5)
print([env.task(seed).content_hash for seed in range(300)], [env.reset(seed=s) for s in range(20)])
"""


@pytest.mark.slow
def test_lakes_do_not_depend_on_the_hash_seed():
    out = {
        subprocess.run(
            [sys.executable, "-c", CODE],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(out) == 1


@pytest.mark.slow
def test_ten_thousand_tasks_are_certified_and_disjoint():
    env = FrozenLakeEnv(size=6, frozen_probability=0.8)
    manifest = build_manifest(
        env, train_tasks=9000, heldout_tasks=500, test_tasks=500, split_seed=0
    )
    tasks = [*manifest.train, *manifest.heldout, *manifest.test]
    assert len({task.content_hash for task in tasks}) == 10_000
    assert all(1 <= task.difficulty <= 10 for task in tasks)
