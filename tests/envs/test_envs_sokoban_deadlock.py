"""Dead-locks: by hand, never claimed where a solution is left, and how an episode tells of them."""

import random

import pytest
from cases import each

from rltune_envs.base import FailureClass
from rltune_envs.sokoban import SokobanEnv
from rltune_envs.sokoban.deadlock import dead_cells, is_deadlocked
from rltune_envs.sokoban.generate import generate
from rltune_envs.sokoban.rules import Level, State, parse_level
from rltune_envs.sokoban.solve import shortest_solution


def room(*inner):
    """Return the level with these inner rows."""
    wall = "#" * (len(inner[0]) + 2)
    return parse_level([wall, *(f"#{row}#" for row in inner), wall])


HAND = [  # (inner rows, whether a dead-lock is seen)
    pytest.param(["X__", "_P_", "_O_"], True, id="corner"),
    pytest.param(["√__", "_PX", "__O"], False, id="target-in-the-corner"),
    pytest.param(["_X__", "_P__", "O___"], True, id="wall-without-a-target"),
    pytest.param(["_X_O", "_P__", "____"], False, id="wall-with-a-target"),
    pytest.param(["______", "_XX___", "_XX_P_", "______", "_OOOO_"], True, id="square"),
    pytest.param(["______", "_√√___", "_√√_P_", "__X___", "____O_"], False, id="square-at-home"),
    pytest.param(["______", "_√√___", "_√X_P_", "______", "___O__"], True, id="one-of-the-square"),
    pytest.param(["_XX_OO", "_P____", "______"], True, id="two-along-a-wall"),
    pytest.param(["_X_XOO", "_P____", "______"], False, id="two-with-a-gap"),
    pytest.param(["_√√___", "_P_X__", "____O_"], False, id="two-at-home"),
    pytest.param(["______", "__XX__", "_P____", "O____O"], False, id="two-in-the-open"),
]


@each(("inner", "expected"), HAND)
def test_hand_levels(inner, expected):
    level = room(*inner)

    assert is_deadlocked(level, level.start) == expected


def test_a_box_is_frozen_by_frozen_ones_only():
    # The lower box leans on the two at the wall: up and down are shut by them, left by the wall.
    frozen = room("_XX_OO", "_#XP__", "_____O")
    # With the pair apart, everything can move.
    free = room("_X_XOO", "_#XP__", "_____O")

    assert is_deadlocked(frozen, frozen.start)
    assert not is_deadlocked(free, free.start)


def test_a_box_that_can_move_to_dead_cells_only_is_frozen():
    # The upper box is home at the wall, so the lower one cannot go up or down; sideways it can, but
    # from there it reaches no target.
    level = room("_√_", "_XP", "_O_")

    assert is_deadlocked(level, level.start)


def test_dead_cells_by_hand():
    # A corridor: at column 1 nobody can stand behind the box, so only that cell is dead.
    assert dead_cells(parse_level(["#######", "#P_X_O#", "#######"])) == 1 << 8


def has_solution(level: Level, state: State) -> bool:
    """Search without any pruning."""
    seen, todo = {state}, [state]
    while todo:
        here = todo.pop()
        if level.is_solved(here):
            return True
        for action in range(4):
            following = level.step(here, action)
            if following not in seen:
                seen.add(following)
                todo.append(following)
    return False


def test_a_dead_lock_is_a_proof_that_nothing_is_left():
    rng = random.Random(0)
    n_seen = n_lost = 0
    for seed in range(80):
        level = generate(
            seed, height=6, width=6, boxes=2, search_depth=100, max_moves=30
        ).level  # fmt: skip
        state = level.start
        for _ in range(40):
            state = level.step(state, rng.randrange(4))
            if rng.random() > 0.1:
                continue
            lost = not has_solution(level, state)
            there = Level(6, 6, level.walls, level.targets, state)
            assert (shortest_solution(there) is None) == lost
            assert lost or not is_deadlocked(level, state)
            n_lost, n_seen = n_lost + lost, n_seen + is_deadlocked(level, state)
    # Most of what is lost is seen without a search.
    assert n_lost >= n_seen > 0.6 * n_lost > 30


@pytest.fixture
def env(tmp_path):
    path = tmp_path / "corner.xsb"
    path.write_text("#####\n# . #\n#@$ #\n#   #\n#####\n", encoding="utf-8")
    return SokobanEnv(levels=str(path), max_turns=2, max_actions_per_turn=2, prompt="compact")


ENDS = [  # (responses, why it is no success)
    pytest.param(["Right", "Up"], FailureClass.LOST, id="lost"),
    pytest.param(["Right", "Jump"], FailureClass.LOST, id="lost-before-the-bad-response"),
    pytest.param(["Up", "Up"], FailureClass.UNFINISHED, id="unfinished"),
    pytest.param(["Up", "Jump"], FailureClass.MALFORMED, id="malformed"),
    pytest.param(["Jump", "Up"], FailureClass.UNFINISHED, id="malformed-before"),
    pytest.param(["Down||Right", "Up"], FailureClass.NONE, id="success"),
]


@pytest.mark.parametrize(("responses", "failure"), ENDS)
def test_why_an_episode_is_no_success(env, responses, failure):
    env.reset(seed=0)
    first, last = (env.step(f"<answer>{response}</answer>") for response in responses)

    # The game goes on in a dead-lock; the reason is given with the end.
    assert (first.terminated, first.truncated) == (False, False)
    assert first.failure_class is FailureClass.NONE
    assert last.failure_class is failure
    assert last.truncated == (failure is not FailureClass.NONE)
    assert env.step("").failure_class is failure
