"""Distance to go and gold responses of the grid games, and of an environment under a rubric."""

import random
from collections import deque

import pytest
from lake_drawings import parse_lake

from rltune_envs.base import GoldResponse
from rltune_envs.errors import EnvError, SearchLimitError
from rltune_envs.frozen_lake import FrozenLakeEnv
from rltune_envs.frozen_lake import env as frozen_lake
from rltune_envs.rewards import SCORES, Rubric, Term
from rltune_envs.sokoban import SokobanEnv
from rltune_envs.sokoban import env as sokoban
from rltune_envs.sokoban.rules import parse_level
from rltune_envs.sokoban.tasks import LevelTask
from rltune_envs.verified import VerifiedEnv


class DrawnRoom(SokobanEnv):
    """Plays one drawn room, whatever the seed."""

    def __init__(self, *rows, **arguments):
        super().__init__(**{"prompt": "compact", **arguments})
        self._drawn = parse_level(rows)

    def _of(self, seed):
        return LevelTask(self._drawn, (), "", "", {})


class DrawnLake(FrozenLakeEnv):
    """Plays one drawn lake, whatever the seed."""

    def __init__(self, *rows, **arguments):
        super().__init__(**{"prompt": "compact", "size": len(rows), **arguments})
        self._drawn = parse_lake(rows)

    def _lake_of(self, seed):
        return self._drawn


def distances(env, *answers, seed=0):
    """Return the distance at the start and after each answer."""
    env.reset(seed=seed)
    found = [env.distance_to_go()]
    for answer in answers:
        env.step(f"<think></think><answer>{answer}</answer>")
        found.append(env.distance_to_go())
    return found


def golds(env, *answers, seed=0):
    """Return what a perfect player would say at the start and after each answer."""
    env.reset(seed=seed)
    found = [env.gold_response()]
    for answer in answers:
        env.step(f"<think></think><answer>{answer}</answer>")
        found.append(env.gold_response())
    return found


CORRIDOR = ("########", "#P_X__O#", "########")  # one step to the box, three pushes
YARD = ("#######", "#_____#", "#P_X_O#", "#_____#", "#######")  # one step, two pushes
ROOMS = [  # (room, answers, distances by hand)
    pytest.param(CORRIDOR, ["Right||Right", "Right||Right"], [4, 2, 0], id="nearer"),
    pytest.param(CORRIDOR, ["Right", "Left"], [4, 3, 4], id="back"),
    pytest.param(CORRIDOR, ["Up", "Jump", ""], [4, 4, 4, 4], id="nothing-moved"),
    # From above, Down pushes the box to the lowest row; a wall holds it there for ever.
    pytest.param(YARD, ["Up||Right", "Right||Down", "Up"], [3, 3, None, None], id="dead"),
    # Above the box and past it: three steps back to its left, then two pushes.
    pytest.param(YARD, ["Up||Right", "Right||Right"], [3, 3, 5], id="the-wrong-way-round"),
]


@pytest.mark.parametrize(("rows", "answers", "by_hand"), ROOMS)
def test_the_distance_in_a_room_by_hand(rows, answers, by_hand):
    assert distances(DrawnRoom(*rows), *answers) == by_hand


def test_limits_do_not_change_the_distance():
    # 4 actions are needed, 1 is allowed, and it is used up.
    assert distances(DrawnRoom(*CORRIDOR, max_actions=1), "Right", "Right") == [4, 3, 3]
    assert distances(DrawnLake("P_", "_G", max_actions=1), "Down", "Right") == [2, 1, 1]


def lengths_from_all_states(level):
    """Return the shortest length from each solvable state: forward once, then backward."""
    start = level.start
    before, seen, queue = {}, {start}, deque([start])
    while queue:
        state = queue.popleft()
        for action in range(4):
            after = level.step(state, action)
            before.setdefault(after, set()).add(state)
            if after not in seen:
                seen.add(after)
                queue.append(after)
    lengths = {state: 0 for state in seen if level.is_solved(state)}
    queue = deque(lengths)
    while queue:
        state = queue.popleft()
        for earlier in before[state] - lengths.keys():
            lengths[earlier] = lengths[state] + 1
            queue.append(earlier)
    return lengths


@pytest.mark.parametrize("arguments", [{}, {"size": 7, "boxes": 2}], ids=str)
def test_the_distance_is_the_one_of_an_exhaustive_table(arguments):
    env, rng = SokobanEnv(prompt="compact", **arguments), random.Random(0)
    n_lost = n_states = 0
    for seed in range(12):
        env.reset(seed=seed)
        lengths, is_over = lengths_from_all_states(env.level), False
        while not is_over:
            assert env.distance_to_go() == lengths.get(env.state)
            n_lost += env.distance_to_go() is None
            n_states += 1
            step = env.step(env.format_response(env.random_actions(rng)))
            is_over = step.terminated or step.truncated
    assert 0 < n_lost < n_states - 12


LAKES = [  # (lake, answers, distances by hand)
    pytest.param(("P_", "OG"), ["Right||Down"], [2, 0], id="goal"),
    pytest.param(("P_", "OG"), ["Left", "Down", "Up"], [2, 2, None, None], id="hole"),
    pytest.param(("P__", "OO_", "G__"), ["Right||Right", "Down"], [6, 4, 3], id="round"),
]


@pytest.mark.parametrize(("rows", "answers", "by_hand"), LAKES)
def test_the_distance_on_a_lake_by_hand(rows, answers, by_hand):
    assert distances(DrawnLake(*rows), *answers) == by_hand


def test_the_distance_on_a_lake_ignores_slips():
    # With success_rate 0 no step goes where it is aimed; the way is as long as ever.
    assert distances(DrawnLake("P_", "_G", success_rate=0.0)) == [2]
    # 1.0, aimed up at the border, slips to a side: right (1 left to go) or left (still 2).
    found = {
        tuple(distances(DrawnLake("P_", "_G", success_rate=0.0), "Up", seed=s)) for s in range(9)
    }
    assert found == {(2, 1), (2, 2)}


COMPACT = GoldResponse("", ("Right||Right",), "</answer>")
NATURAL = GoldResponse("</think> <answer>", ("Right || Right",), "</answer>")


@pytest.mark.parametrize("env", [DrawnRoom, DrawnLake], ids=["room", "lake"])
@pytest.mark.parametrize(("prompt", "first"), [("compact", COMPACT), ("natural", NATURAL)])
def test_the_gold_response_of_a_grid_by_hand(env, prompt, first):
    rows = CORRIDOR if env is DrawnRoom else ("P____", *["OOOO_"] * 3, "OOOOG")
    start, later, odd = golds(env(*rows, prompt=prompt), "Right", "Jump")

    assert start == later == odd == first  # of the 3 or more actions to the right, always two


def test_the_gold_response_is_none_in_a_dead_end_and_after_the_end():
    assert golds(DrawnRoom(*YARD), "Up||Right", "Right||Down")[1:] == [
        GoldResponse("", ("Down||Right",), "</answer>"), None
    ]  # fmt: skip
    assert golds(DrawnLake("P_", "OG"), "Down")[1] is None
    for env in (DrawnRoom(*CORRIDOR), DrawnLake("P____", *["OOOO_"] * 3, "OOOOG")):
        env.max_turns = 2
        start, after, end = golds(env, "Right", "Left")
        assert start is not None
        assert after is not None
        assert end is None  # two turns are all; there is still a way


def test_the_gold_response_names_no_more_than_can_be_executed():
    env = DrawnRoom(*CORRIDOR, max_turns=9, max_actions=3)
    (*_, last) = golds(env, "Right||Left")

    assert last == GoldResponse("", ("Right",), "</answer>")


@pytest.mark.parametrize("prompt", ["natural", "compact"])
@pytest.mark.parametrize("make", [SokobanEnv, FrozenLakeEnv])
def test_saying_only_gold_responses_solves_every_task(make, prompt):
    env = make(prompt=prompt)
    for seed in range(40):
        env.reset(seed=seed)
        left = env.task(seed).difficulty
        assert env.distance_to_go() == left
        while gold := env.gold_response():
            (said,) = gold.golds
            step = env.step(f"{env.response_prefix}{gold.before}{said}{gold.after}")
            left -= len(step.actions)
            assert env.distance_to_go() == left
            assert step.is_valid
        assert step.success


def test_before_reset_there_is_nothing_to_measure():
    for env in (SokobanEnv(), FrozenLakeEnv()):
        for ask in (env.distance_to_go, env.gold_response):
            with pytest.raises(EnvError, match=r"^call reset\(seed=\.\.\.\) first$"):
                ask()


def test_nothing_is_searched_unless_one_asks(monkeypatch):
    envs = SokobanEnv(), FrozenLakeEnv(success_rate=0.8)
    said = [env.format_response(env.action_names[:2]) for env in envs]
    for env in envs:
        env.reset(seed=0)

    def search(*arguments, **keywords):
        raise SearchLimitError("asked")

    monkeypatch.setattr(sokoban, "_solution", search)
    monkeypatch.setattr(frozen_lake, "shortest_way", search)
    monkeypatch.setattr(frozen_lake, "perfect_player", search)
    for env, response in zip(envs, said, strict=True):
        env.reset(seed=0)
        assert env.step(response).is_valid
        for ask in (env.distance_to_go, env.gold_response):
            if not env._last.terminated:
                with pytest.raises(SearchLimitError, match=r"^asked$"):
                    ask()


def test_under_a_rubric_both_are_the_environments_own():
    inner = DrawnRoom(*CORRIDOR)
    env = VerifiedEnv(inner, Rubric((Term("success", 1.0, SCORES["success"]),)))

    assert golds(env, "Right") == [COMPACT, COMPACT]
    assert distances(env, "Right||Right", "Right||Right") == [4, 2, 0]
