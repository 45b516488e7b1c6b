"""The rules of FrozenLake: by hand, and cell by cell against Gymnasium."""

import random
from collections import Counter

import gymnasium
import numpy as np
import pytest
from cases import each
from lake_drawings import parse_lake
from scipy.stats import chisquare

from rltune_envs.frozen_lake.batch import LakeBatch
from rltune_envs.frozen_lake.generate import generate
from rltune_envs.frozen_lake.rules import (
    ACTIONS,
    Lake,
    canonical_hash,
    check_success_rate,
    move,
    near_hash,
    render,
    slip,
    transition_table,
)

RATES = (0.0, 1 / 3, 0.8, 0.98, 1.0)
LEFT, DOWN, RIGHT, UP = range(4)


def lakes(n, *, size=4):
    return [
        generate(seed, size=size, frozen_probability=0.8, min_difficulty=1, max_difficulty=10)
        for seed in range(n)
    ]


@pytest.mark.parametrize("rate", RATES)
def test_transitions_equal_gymnasium_s_in_every_cell(rate):
    for lake in lakes(12):
        rows = ["".join("FH"[lake.is_hole(r * 4 + c)] for c in range(4)) for r in range(4)]
        text = list("".join(rows))
        text[lake.start], text[lake.goal] = "S", "G"
        desc = ["".join(text[i : i + 4]) for i in range(0, 16, 4)]
        peer = gymnasium.make("FrozenLake-v1", desc=desc, is_slippery=True, success_rate=rate)
        table = transition_table(lake, rate)
        for cell in range(16):
            for action in range(4):
                theirs = peer.unwrapped.P[cell][action]
                ours = [
                    (o.probability, o.cell, o.reward, o.terminated) for o in table[cell][action]
                ]
                assert len(ours) == len(theirs)
                for mine, (p, reached, reward, terminated) in zip(ours, theirs, strict=True):
                    assert mine[1:] == (int(reached), float(reward), bool(terminated))
                    assert mine[0] == pytest.approx(float(p), abs=1e-12)


def test_the_order_of_actions_is_gymnasium_s():
    from gymnasium.envs.toy_text import frozen_lake as peer

    order = (peer.LEFT, peer.DOWN, peer.RIGHT, peer.UP)
    assert order == tuple(ACTIONS.index(name) for name in ("Left", "Down", "Right", "Up"))


@pytest.mark.parametrize(
    ("rate", "by_hand"),
    [
        # Aimed right from the middle of 3x3 (cell 4): up is 1, right is 5, down is 7, left never.
        (0.0, {1: 0.5, 5: 0.0, 7: 0.5}),
        (1 / 3, {1: 1 / 3, 5: 1 / 3, 7: 1 / 3}),
        (0.8, {1: 0.1, 5: 0.8, 7: 0.1}),
        (1.0, {1: 0.0, 5: 1.0, 7: 0.0}),
    ],
)
def test_a_step_by_hand_and_never_backwards(rate, by_hand):
    lake = parse_lake(["P__", "___", "__G"])
    outcomes = transition_table(lake, rate)[4][RIGHT]
    assert {o.cell: pytest.approx(o.probability) for o in outcomes} == by_hand
    assert 3 not in {o.cell for o in outcomes}


@pytest.mark.parametrize("rate", [1 / 3, 0.8])
def test_slips_are_as_frequent_as_they_should_be(rate):
    rng = random.Random(0)
    n = 20_000
    seen = Counter(slip(DOWN, luck=rng.random(), success_rate=rate) for _ in range(n))
    side = (1 - rate) / 2
    assert seen[UP] == 0
    observed = [seen[DOWN], seen[LEFT], seen[RIGHT]]
    assert chisquare(observed, [n * rate, n * side, n * side]).pvalue > 0.001


def test_the_border_stays_and_both_ends_end():
    lake = parse_lake(["PO", "_G"])
    assert move(2, 0, LEFT) == move(2, 0, UP) == 0
    (hole,) = (o for o in transition_table(lake, 1.0)[0][RIGHT] if o.probability)
    assert (hole.cell, hole.reward, hole.terminated) == (1, 0.0, True)
    (goal,) = (o for o in transition_table(lake, 1.0)[2][RIGHT] if o.probability)
    assert (goal.cell, goal.reward, goal.terminated) == (3, 1.0, True)


def test_drawing_reads_back_and_shows_where_an_episode_ended():
    lake = parse_lake(["P_O", "___", "O_G"])
    assert render(lake, lake.start) == ("P_O", "___", "O_G")
    assert render(lake, 2)[0] == "__X"
    assert render(lake, 8)[2] == "O_√"
    assert lake == Lake(3, 1 << 2 | 1 << 6, 0, 8)


def test_hashes_know_symmetric_pictures_and_near_ones():
    lake = parse_lake(["P_O", "___", "O_G"])
    turned = parse_lake(["O_P", "___", "G_O"])
    moved = parse_lake(["_PO", "___", "O_G"])
    assert canonical_hash(lake) == canonical_hash(turned)
    assert canonical_hash(lake) != canonical_hash(moved)
    assert near_hash(lake) == near_hash(turned) == near_hash(moved)
    assert near_hash(parse_lake(["P__", "___", "O_G"])) != near_hash(lake)


@each(
    ("value", "message"),
    [
        (1, "success_rate is 1, which may mean 1 % or always; write 1.0 for always, 0.01 for 1 %"),
        (80, "success_rate is 80, which looks like percent; write 0.8"),
        (1.5, "success_rate is 1.5, which looks like percent; write 0.015"),
        (-0.1, "success_rate is -0.1; give a probability from 0.0 to 1.0"),
        (200, "success_rate is 200; give a probability from 0.0 to 1.0"),
        (True, "success_rate is True; give a probability from 0.0 to 1.0"),
        ("0.8", "success_rate is '0.8'; give a probability from 0.0 to 1.0"),
        (float("nan"), "success_rate is nan; give a probability from 0.0 to 1.0"),
    ],
)
def test_an_ambiguous_rate_is_refused(value, message):
    with pytest.raises(ValueError, match="success_rate") as error:
        check_success_rate(value)
    assert str(error.value) == message


def test_plain_rates_pass():
    assert [check_success_rate(value) for value in (0, 0.0, 0.98, 1.0)] == [0.0, 0.0, 0.98, 1.0]


@pytest.mark.parametrize("rate", [0.0, 0.8, 1.0])
def test_the_batch_walks_as_the_rules_do(rate):
    many = lakes(64)
    batch = LakeBatch(many, success_rate=rate)
    cells = [lake.start for lake in many]
    rng = np.random.default_rng(0)
    n_ends = 0
    for _ in range(100):
        actions, luck = rng.integers(4, size=64), rng.random(64)
        step = batch.step(actions, luck)
        for i, lake in enumerate(many):
            direction = slip(int(actions[i]), luck=luck[i], success_rate=rate)
            cell = move(4, cells[i], direction)
            assert step.terminated_B[i] == lake.is_end(cell)
            assert step.rewards_B[i] == float(cell == lake.goal)
            cells[i] = lake.start if lake.is_end(cell) else cell
            n_ends += lake.is_end(cell)
        assert step.cells_B.tolist() == cells
    assert n_ends > 100
