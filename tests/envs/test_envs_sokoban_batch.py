"""The vectorised rooms against `Level.step`, action by action."""

import numpy as np
import pytest

from rltune_envs.sokoban.batch import SokobanBatch
from rltune_envs.sokoban.generate import generate
from rltune_envs.sokoban.rules import parse_level


def rooms(n, *, size, boxes):
    made = (
        generate(seed, height=size, width=size, boxes=boxes, search_depth=100, max_moves=20)
        for seed in range(n)
    )
    return [one.level for one in made]


@pytest.mark.parametrize(("size", "boxes", "max_actions"), [(6, 1, 10), (7, 2, 25), (8, 2, 100)])
def test_the_batch_moves_as_the_rules_do(size, boxes, max_actions):
    levels = rooms(40, size=size, boxes=boxes)
    batch = SokobanBatch(levels, max_actions=max_actions)
    states, played = [level.start for level in levels], [0] * 40
    rng = np.random.default_rng(0)
    n_solved = n_pushed = n_cut = 0
    for _ in range(300):
        actions = rng.integers(4, size=40)
        step = batch.step(actions)
        for i, level in enumerate(levels):
            before, after = states[i], level.step(states[i], int(actions[i]))
            played[i] += 1
            home = [(state.boxes & level.targets).bit_count() for state in (before, after)]
            solved = level.is_solved(after)
            cut = played[i] == max_actions and not solved
            assert step.rewards_B[i] == -0.1 + 1.0 * (home[1] - home[0]) + 10.0 * solved
            assert (step.terminated_B[i], step.truncated_B[i]) == (solved, cut)
            n_solved, n_cut = n_solved + solved, n_cut + cut
            n_pushed += before.boxes != after.boxes
            states[i], played[i] = (level.start, 0) if solved or cut else (after, played[i])
        assert batch.players_B.tolist() == [state.player for state in states]
        cells = [sum(1 << int(c) for c in row.nonzero()[0]) for row in batch.boxes_Bn]
        assert cells == [state.boxes for state in states]
    assert min(n_solved, n_cut) > 10
    assert n_pushed > 400


def test_rooms_may_have_different_numbers_of_boxes_but_not_sizes():
    one = parse_level(["######", "#PX_O#", "######"])
    two = parse_level(["######", "#PXO√#", "######"])
    batch = SokobanBatch([one, two], max_actions=5)
    step = batch.step(np.array([3, 3]))

    # Right: the first box comes nearer, the second one home.
    assert step.rewards_B.tolist() == [-0.1, -0.1 + 1.0 + 10.0]
    assert step.terminated_B.tolist() == [False, True]
    assert batch.players_B.tolist() == [8, 7]  # the second room starts again at once
    with pytest.raises(ValueError, match=r"^all rooms of a batch need one height and one width$"):
        SokobanBatch([one, parse_level(["#####", "#PXO#", "#####"])], max_actions=5)
