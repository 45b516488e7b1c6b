"""The Sokoban environment: rewards, limits, ends, and what it says about its tasks."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltune_envs.errors import EnvError
from rltune_envs.sokoban import SokobanEnv, tasks
from rltune_envs.sokoban.rules import ACTIONS, parse_level
from rltune_envs.sokoban.tasks import LevelTask


class Drawn(SokobanEnv):
    """Plays one drawn level, whatever the seed."""

    def __init__(self, *rows, **arguments):
        super().__init__(prompt="compact", **arguments)
        self._drawn = parse_level(rows)

    def _of(self, seed):
        return LevelTask(self._drawn, (), "", "", {})


def play(env, *responses):
    """Reset and answer with each of the responses; return the steps."""
    env.reset(seed=0)
    return [env.step(f"<answer>{response}</answer>") for response in responses]


CORRIDOR = ("########", "#P_X__O#", "########")


def test_one_box_in_k_actions_earns_eleven_minus_a_tenth_of_k():
    # k = 4: -0.1 - 0.1 - 0.1 + (-0.1 + 1 + 10) = 11 - 0.4
    steps = play(Drawn(*CORRIDOR), "Right||Right", "Right||Right")

    assert [step.reward for step in steps] == pytest.approx([-0.2, 10.8])
    assert sum(step.reward for step in steps) == pytest.approx(11 - 0.1 * 4)
    assert [step.terminated for step in steps] == [False, True]
    assert steps[-1].success
    assert not steps[-1].truncated


@pytest.mark.parametrize("prompt", ["natural", "compact"])
def test_the_expert_earns_eleven_minus_a_tenth_of_optimal(prompt):
    env = SokobanEnv(search_depth=30, prompt=prompt)
    for seed in range(100):
        env.reset(seed=seed)
        total, step = 0.0, None
        while step is None or not step.terminated:
            step = env.step(env.format_response(env.expert_actions()))
            total += step.reward
        assert total == pytest.approx(11 - 0.1 * env.task(seed).difficulty)


REWARDS = [  # (responses, reward of each turn)
    pytest.param(["Up"], [-0.1], id="blocked action costs a step"),
    pytest.param(["Up||Jump"], [-0.1 - 0.1], id="a good action and a bad name"),
    pytest.param(["Jump||Up"], [-0.1], id="only the format penalty"),
    pytest.param([""], [-0.1], id="no name"),
    pytest.param(["Up||Up||Up"], [-0.2], id="over the cap costs nothing"),
]


@pytest.mark.parametrize(("responses", "rewards"), REWARDS)
def test_reward_of_a_turn(responses, rewards):
    steps = play(Drawn(*CORRIDOR), *responses)

    assert [step.reward for step in steps] == pytest.approx(rewards)


def test_boxes_that_come_to_a_target_and_leave_it():
    # Two boxes. Right pushes the first off its target: -0.1 - 1. Right again, onto the next: +1.
    env = Drawn("#########", "#P√_O___#", "#__X____#", "#########")
    off, nothing = play(env, "Right", "Right")

    assert off.reward == pytest.approx(-1.1)
    assert nothing.reward == pytest.approx(-0.1 + 1)
    assert not nothing.success


def test_the_format_penalty_is_a_parameter():
    (step,) = play(Drawn(*CORRIDOR, format_penalty=-0.5), "Up||Jump||Up")

    assert step.reward == pytest.approx(-0.6)
    assert (step.actions, step.n_invalid, step.is_valid) == (("Up",), 1, False)


def test_turns_truncate():
    steps = play(Drawn(*CORRIDOR, max_turns=3, max_actions=10), "Up", "", "Up")

    assert [step.truncated for step in steps] == [False, False, True]
    assert not any(step.terminated for step in steps)


def test_actions_truncate_and_cut_the_last_turn():
    steps = play(Drawn(*CORRIDOR, max_actions=3), "Up||Up", "Up||Up")

    assert [step.truncated for step in steps] == [False, True]
    assert (steps[1].actions, steps[1].n_over_limit) == (("Up",), 1)


def test_blocked_actions_count_as_actions():
    # 5 turns x 2 = 10: bumping into a wall uses them up.
    steps = play(Drawn(*CORRIDOR), *["Up||Down"] * 5)

    assert [step.truncated for step in steps] == [False] * 4 + [True]


def test_solved_with_the_last_action_is_terminated_not_truncated():
    steps = play(Drawn(*CORRIDOR, max_turns=2, max_actions=4), "Right||Right", "Right||Right")

    assert (steps[1].terminated, steps[1].truncated, steps[1].success) == (True, False, True)


def test_what_follows_the_solving_action_is_not_executed():
    (step,) = play(Drawn("#####", "#PXO#", "#####", max_actions_per_turn=5), "Right||Left||Jump")

    assert step.actions == ("Right",)
    assert step.success
    # Jump is still a bad name in the response.
    assert step.reward == pytest.approx(-0.1 - 0.1 + 1 + 10)


def test_a_step_after_the_end_changes_and_earns_nothing():
    env = Drawn(*CORRIDOR)
    steps = play(env, "Right||Right", "Right||Right", "Left", "")

    for step in steps[2:]:
        assert (step.reward, step.actions, step.n_invalid) == (0.0, (), 0)
        assert (step.terminated, step.success) == (True, True)
        assert step.observation == steps[1].observation


def test_a_bad_response_moves_nothing():
    env = Drawn(*CORRIDOR)
    before = env.reset(seed=0)
    for response in ("", "Right", "<answer>Right", "<answer>Jump||Right</answer>"):
        assert env.step(response).observation == before


def test_a_lost_level_has_no_expert():
    env = Drawn("#######", "#_____#", "#___X_#", "#___P_#", "#O____#", "#######")
    play(env, "Up")

    assert env.expert_actions() is None


def test_step_before_reset_says_what_to_do():
    with pytest.raises(EnvError, match=r"^call reset\(seed=\.\.\.\) first$"):
        SokobanEnv().step("")


def test_an_unknown_prompt_is_refused():
    message = r"^prompt is 'compcat'; choose one of natural, compact\. Did you mean 'compact'\?$"
    with pytest.raises(ValueError, match=message):
        SokobanEnv(prompt="compcat")


def test_episodes_can_be_as_long_as_the_longest_level():
    # 3 turns of 3 actions with at most 8: levels need at most 8; with 2 turns, at most 6.
    for arguments, limit in (({"max_turns": 3, "max_actions": 8}, 8), ({"max_turns": 2}, 6)):
        env = SokobanEnv(search_depth=100, max_actions_per_turn=3, **arguments)
        assert max(env.task(seed).difficulty for seed in range(300)) == limit


def test_threads_and_global_random_state():
    # cases.md A2: 64 environments in 1 thread and in 8, nothing cached before either.
    def first_observation(seed):
        return SokobanEnv(size=7, boxes=2).reset(seed=seed)

    state = random.getstate()
    in_threads = []
    for threads in (1, 8):
        tasks._generated.cache_clear()
        with ThreadPoolExecutor(threads) as pool:
            in_threads.append(list(pool.map(first_observation, range(64))))

    assert in_threads[0] == in_threads[1]
    assert random.getstate() == state


def test_exact_floor_is_what_random_responses_reach():
    # cases.md H5 through the text interface: 500 episodes on each of 10 levels.
    env = SokobanEnv(search_depth=30, prompt="compact")
    rng = random.Random(0)
    exact = variance = n_solved = 0.0
    for seed in range(10):
        floor = env.random_success_probability(seed)
        exact, variance = exact + 500 * floor, variance + 500 * floor * (1 - floor)
        for _ in range(500):
            env.reset(seed=seed)
            step = None
            while step is None or not (step.terminated or step.truncated):
                step = env.step(env.format_response(rng.choices(ACTIONS, k=2)))
            n_solved += step.success

    assert abs(n_solved - exact) < 3 * variance**0.5


@given(st.integers(0, 2**64), st.lists(st.text(max_size=20), max_size=6))
def test_same_seed_and_responses_give_the_same_episode(seed, responses):
    def episode(env):
        answers = [f"<answer>{response}</answer>" for response in responses]
        return env.reset(seed=seed), [env.step(answer) for answer in answers]

    env = SokobanEnv(search_depth=30, prompt="compact")
    first = episode(env)
    env.reset(seed=seed + 1)

    assert episode(env) == episode(SokobanEnv(search_depth=30, prompt="compact")) == first
