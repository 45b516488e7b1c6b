"""Exact values: shortest ways, the random floor, the best player under slip."""

import itertools

import numpy as np
import pytest
from cases import each
from lake_drawings import parse_lake

from rltune_envs.errors import GenerationError
from rltune_envs.frozen_lake.batch import LakeBatch
from rltune_envs.frozen_lake.env import FrozenLakeEnv
from rltune_envs.frozen_lake.generate import generate
from rltune_envs.frozen_lake.rules import canonical_hash, slip, transition_table
from rltune_envs.frozen_lake.solve import (
    PerfectPlayer,
    random_success_probability,
    shortest_way,
)

RATES = (0.0, 1 / 3, 0.8, 0.98, 1.0)


def lake_of(seed):
    return generate(seed, size=4, frozen_probability=0.8, min_difficulty=1, max_difficulty=10)


def test_a_shortest_way_by_hand():
    lake = parse_lake(["PO_", "_O_", "__G"])
    assert shortest_way(lake, lake.start) == (1, 1, 2, 2)
    assert shortest_way(lake, 1) is None  # a hole
    assert shortest_way(lake, lake.goal) == ()
    assert shortest_way(parse_lake(["PO", "OG"]), 0) is None


def test_a_random_walk_by_hand():
    # P G      One step: Right reaches it, 1/4. Two: 1/4 + P(still on P) 1/2 * 1/4, and from the
    # _ O      cell below (Down, 1/4) no direction reaches it in one.
    lake = parse_lake(["PG", "_O"])
    assert random_success_probability(lake, max_actions=1) == 0.25
    assert random_success_probability(lake, max_actions=2) == 0.25 + 0.5 * 0.25


@each("seed", range(6))
def test_the_random_floor_is_the_same_at_every_slip(seed):
    """Pushed forward through the transition table itself, which knows the rate."""
    lake = lake_of(seed)
    floor = random_success_probability(lake, max_actions=10)
    for rate in RATES:
        table = transition_table(lake, rate)
        alive, goal = {lake.start: 1.0}, 0.0
        for _ in range(10):
            following: dict[int, float] = {}
            for cell, mass in alive.items():
                for outcome in (o for action in table[cell] for o in action):
                    p = mass * outcome.probability / 4
                    goal += p * outcome.reward
                    if not outcome.terminated:
                        following[outcome.cell] = following.get(outcome.cell, 0.0) + p
            alive = following
        assert goal == pytest.approx(floor, abs=1e-12)


def test_the_floor_equals_a_simulation():
    many = [lake_of(seed) for seed in range(200)]
    exact = np.array([random_success_probability(lake, max_actions=10) for lake in many])
    n_each = 100  # 20,000 episodes
    rng = np.random.default_rng(1)
    for rate in (1 / 3, 1.0):
        wins = 0
        batch = LakeBatch(many * n_each, success_rate=rate)
        over = np.zeros(len(many) * n_each, dtype=bool)
        for _ in range(10):
            step = batch.step(rng.integers(4, size=over.size), rng.random(over.size))
            wins += int((step.rewards_B * ~over).sum())
            over |= step.terminated_B
        sigma = np.sqrt(n_each * (exact * (1 - exact)).sum())
        assert abs(wins - n_each * exact.sum()) < 3 * sigma


def brute_force(lake, rate, turns, actions, longest, cell):
    """Return the best success probability by trying every plan; no tables, no numpy."""
    if not turns or not actions:
        return 0.0
    table = transition_table(lake, rate)
    best = 0.0
    for length in range(1, min(longest, actions) + 1):
        for plan in itertools.product(range(4), repeat=length):
            alive, goal = {cell: 1.0}, 0.0
            for action in plan:
                following: dict[int, float] = {}
                for here, mass in alive.items():
                    for outcome in table[here][action]:
                        goal += mass * outcome.probability * outcome.reward
                        if not outcome.terminated and outcome.probability:
                            p = following.get(outcome.cell, 0.0) + mass * outcome.probability
                            following[outcome.cell] = p
                alive = following
            value = goal + sum(
                mass * brute_force(lake, rate, turns - 1, actions - length, longest, here)
                for here, mass in alive.items()
            )
            best = max(best, value)
    return best


@each(("turns", "actions"), [(1, 2), (2, 3), (2, 4)])
@each("rate", [0.0, 0.8])
def test_the_perfect_player_equals_brute_force(rate, turns, actions):
    lake = parse_lake(["P_O", "___", "O_G"])
    player = PerfectPlayer(lake, success_rate=rate, max_actions_per_turn=2)
    ours = player.success_probability(lake.start, turns=turns, actions=actions)
    assert ours == pytest.approx(brute_force(lake, rate, turns, actions, 2, lake.start), abs=1e-12)


def test_the_ceiling_falls_with_slip_and_is_one_without():
    values = []
    for rate in (1.0, 0.98, 0.8, 0.6, 1 / 3):
        env = FrozenLakeEnv(success_rate=rate, frozen_probability=0.8)
        values.append(np.mean([env.optimal_success_probability(seed) for seed in range(100)]))
    assert values[0] == 1.0
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.8


def test_without_slip_the_dynamic_programme_agrees_with_the_shortest_way():
    for seed in range(40):
        lake = lake_of(seed)
        player = PerfectPlayer(lake, success_rate=1.0, max_actions_per_turn=2)
        need = len(shortest_way(lake, lake.start))
        for actions in range(1, 11):
            reached = player.success_probability(lake.start, turns=5, actions=actions)
            assert reached == float(actions >= need)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.5, 0.8])
def test_the_ceiling_equals_a_simulation(rate):
    """20,000 episodes of the plan on 20 lakes, with fresh luck."""
    rng = np.random.default_rng(2)
    n_each, wins, expected, variance = 1000, 0, 0.0, 0.0
    for seed in range(20):
        lake = lake_of(seed)
        player = PerfectPlayer(lake, success_rate=rate, max_actions_per_turn=2)
        p = player.success_probability(lake.start, turns=5, actions=10)
        expected, variance = expected + n_each * p, variance + n_each * p * (1 - p)
        wins += sum(play(player, lake, rate, rng) for _ in range(n_each))
    assert abs(wins - expected) < 3 * np.sqrt(variance)


def play(player, lake, rate, rng):
    cell, actions = lake.start, 10
    for turns in range(5, 0, -1):
        for action in player.plan(cell, turns=turns, actions=actions):
            direction = slip(action, luck=rng.random(), success_rate=rate)
            cell = next(
                o.cell for o in transition_table(lake, 1.0)[cell][direction] if o.probability
            )
            actions -= 1
            if lake.is_end(cell):
                return cell == lake.goal
        if not actions:
            return False
    return False


def test_lakes_are_certified_and_symmetric_ones_are_one():
    hashes = {canonical_hash(lake_of(seed)) for seed in range(2000)}
    assert all(
        1 <= len(shortest_way(lake_of(seed), lake_of(seed).start)) <= 10 for seed in range(2000)
    )
    assert 1200 < len(hashes) < 2000


def test_an_impossible_band_ends_with_one_error():
    with pytest.raises(GenerationError, match="raise frozen_probability, widen the band"):
        generate(0, size=2, frozen_probability=0.9, min_difficulty=5, max_difficulty=6)
