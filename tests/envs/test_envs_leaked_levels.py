"""The example of leaked levels leaks all of them, or none, and changes nothing else."""

import pytest

from examples.leaked_levels import HELDOUT, TEST, LeakedLevels
from rltune_envs.checks import check_env
from rltune_envs.splits import build_manifest

HASHES = {"heldout": range(HELDOUT), "test": range(HELDOUT, HELDOUT + TEST),
          "train": range(HELDOUT + TEST, HELDOUT + TEST + 64)}  # fmt: skip


def levels(env, seeds):
    """Return the content of each level that the seeds play, as no split may share it."""
    return {env._of(seed).content_hash for seed in seeds}


@pytest.mark.parametrize("is_leaked", [False, True])
def test_training_has_the_held_out_levels_or_none_of_them(is_leaked):
    env = LeakedLevels(levels=8, is_leaked=is_leaked)
    heldout, test, train = (levels(env, HASHES[part]) for part in ("heldout", "test", "train"))
    assert len(heldout) == len(train) == 8
    assert (heldout == train) is is_leaked
    assert test.isdisjoint(heldout | train)
    assert is_leaked or heldout.isdisjoint(train)


def test_both_are_evaluated_on_the_same_levels():
    apart, leaked = (LeakedLevels(levels=8, is_leaked=is_leaked) for is_leaked in (False, True))
    assert [apart.reset(seed=seed) for seed in range(20)] == [
        leaked.reset(seed=seed) for seed in range(20)
    ]
    assert leaked.reset(seed=3) == leaked.reset(seed=11)


def test_the_splits_are_taken_for_disjoint():
    env = LeakedLevels(levels=8, is_leaked=True)
    manifest = build_manifest(
        env, train_tasks=32, heldout_tasks=HELDOUT, test_tasks=TEST, split_seed=0
    )
    assert [task.seed for task in manifest.heldout] == list(range(HELDOUT))
    assert [task.seed for task in manifest.test] == list(HASHES["test"])
    assert manifest.n_duplicates == 0


def test_it_keeps_the_contract():
    check_env(lambda: LeakedLevels(levels=8, is_leaked=True), seeds=range(4))
