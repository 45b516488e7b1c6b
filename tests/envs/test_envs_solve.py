"""The solver against hand levels, brute force, and simulation; published lengths: `..._optimal`."""

import math
import random
import re
from collections import deque
from dataclasses import replace

import pytest
from cases import each
from hypothesis import given
from hypothesis import strategies as st

from rltune_envs.errors import SearchLimitError
from rltune_envs.sokoban.deadlock import live_cells
from rltune_envs.sokoban.generate import generate
from rltune_envs.sokoban.rules import Level, State, parse_level
from rltune_envs.sokoban.solve import random_success_probability, shortest_solution

UP, DOWN, LEFT, RIGHT = range(4)


def test_hand_solutions():
    wall = "#######"
    assert shortest_solution(parse_level([wall, "#P_X_O#", wall])) == (RIGHT,) * 3
    assert shortest_solution(parse_level([wall, "#P__√_#", wall])) == ()
    assert shortest_solution(parse_level([wall, "#P_OX_#", wall])) is None
    # Round the box: right and down past it, then push left.
    level = parse_level([wall, "#__P__#", "#O_X__#", wall])
    assert shortest_solution(level) == (RIGHT, DOWN, LEFT, LEFT)


def test_ties_go_to_the_earlier_action():
    # Two pushes away, and both ways round the corner take two moves: Up comes before Right.
    rows = ["######", "#__XO#", "#P___#", "######"]
    assert shortest_solution(parse_level(rows)) == (UP, RIGHT, RIGHT)


def test_max_moves_bounds_the_search():
    level = parse_level(["#######", "#P_X_O#", "#######"])

    assert shortest_solution(level, max_moves=3) == (RIGHT,) * 3
    assert shortest_solution(level, max_moves=2) is None
    assert shortest_solution(level, max_moves=0) is None


def test_the_state_budget_is_an_error_of_its_own():
    level = generate(0, height=8, width=8, boxes=2, search_depth=100, max_moves=20).level
    message = "no answer within 3 positions; raise max_nodes or use a smaller level"
    with pytest.raises(SearchLimitError, match=f"^{re.escape(message)}$"):
        shortest_solution(level, max_nodes=3)


def random_room(seed: int) -> Level:
    """Return a 6x6 room with walls at random, one box, one target and the player."""
    rng = random.Random(seed)
    inner = [6 * row + column for row in range(1, 5) for column in range(1, 5)]
    player, box, target, *rest = rng.sample(inner, len(inner))
    free = {player, box, target, *rest[: rng.randrange(len(rest) + 1)]}
    walls = sum(1 << cell for cell in range(36) if cell not in free)
    return Level(6, 6, walls, 1 << target, State(player, 1 << box))


def is_pushable_home(level: Level, box: int) -> bool:
    """Whether pushes bring a box home when the player may stand anywhere before each of them."""
    seen, todo = {box}, [box]
    while todo:
        cell = todo.pop()
        if level.targets >> cell & 1:
            return True
        for delta in level.deltas:
            is_free = not (level.walls >> (cell + delta) & 1 or level.walls >> (cell - delta) & 1)
            if is_free and cell + delta not in seen:
                seen.add(cell + delta)
                todo.append(cell + delta)
    return False


@each("seed", range(60))
def test_live_cells_equal_brute_force(seed):
    level = random_room(seed)
    free = [cell for cell in range(36) if not level.walls >> cell & 1]
    expected = sum(1 << cell for cell in free if is_pushable_home(level, cell))

    assert live_cells(level) == expected


def plain_length(level: Level) -> int | None:
    """Return the length of a shortest solution by search without any pruning."""
    seen, todo = {level.start}, deque([(level.start, 0)])
    while todo:
        state, length = todo.popleft()
        if level.is_solved(state):
            return length
        for action in range(4):
            following = level.step(state, action)
            if following not in seen:
                seen.add(following)
                todo.append((following, length + 1))
    return None


@given(st.integers(0, 10**9))
def test_pruning_changes_no_answer(seed):
    level = random_room(seed)
    solution = shortest_solution(level)

    assert (None if solution is None else len(solution)) == plain_length(level)


def test_random_success_by_hand():
    corridor = parse_level(["#####", "#PXO#", "#####"])
    # Only Right moves, and it solves: 1 - (3/4)^n.
    assert random_success_probability(corridor, max_actions=0) == 0
    assert random_success_probability(corridor, max_actions=1) == 1 / 4
    assert random_success_probability(corridor, max_actions=2) == 7 / 16

    longer = parse_level(["######", "#PX_O#", "######"])
    # Right, then the box is at column 3 and the player may walk back. In two actions: 1/16.
    assert random_success_probability(longer, max_actions=2) == 1 / 16
    # In three: R R ., and of x R R or R x R with x one of the three others the ones that come
    # back in time: Up, Down or Left first (3/64), Up or Down between (2/64; Left walks away).
    assert random_success_probability(longer, max_actions=3) == 1 / 16 + 3 / 64 + 2 / 64


def test_an_unsolvable_level_has_no_random_success():
    level = parse_level(["#######", "#P_OX_#", "#######"])
    assert random_success_probability(level, max_actions=10) == 0


@pytest.mark.parametrize("seed", [0, 3, 7])
def test_exact_floor_equals_simulation(seed):
    # cases.md H5: 20,000 episodes of 10 uniform actions, within 3 sigma.
    level = generate(seed, height=6, width=6, boxes=1, search_depth=30, max_moves=10).level
    exact = random_success_probability(level, max_actions=10)
    rng = random.Random(seed)
    n_episodes, n_solved = 20_000, 0
    for _ in range(n_episodes):
        state = level.start
        for _ in range(10):
            state = level.step(state, rng.randrange(4))
            if level.is_solved(state):
                n_solved += 1
                break
    sigma = math.sqrt(exact * (1 - exact) / n_episodes)

    assert 0.01 < exact < 0.99
    assert abs(n_solved / n_episodes - exact) < 3 * sigma


def test_solving_again_from_halfway_needs_the_rest():
    for seed in range(50):
        certified = generate(seed, height=6, width=6, boxes=1, search_depth=30, max_moves=10)
        state = certified.level.step(certified.level.start, certified.solution[0])
        rest = shortest_solution(replace(certified.level, start=state))
        assert rest == certified.solution[1:]
