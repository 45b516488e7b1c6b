"""The record of fresh tasks."""

from rltune.analysis.fresh import split_seed_of
from rltune_envs.draw import MAX_SPLIT_SEED


def test_each_generation_has_a_split_seed_of_its_own():
    seeds = [split_seed_of(name) for name in ("a-1/x", "b-2/y", "b-2/z")]
    assert len(set(seeds)) == 3
    assert all(0 <= seed <= MAX_SPLIT_SEED for seed in seeds)
