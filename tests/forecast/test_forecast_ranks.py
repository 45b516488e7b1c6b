"""The memory of the first of several ranks, by hand."""

from dataclasses import replace

import pytest
from run_folders import write_sweep

from rltune.forecast.memory import memory_plan
from rltune.forecast.model_shapes import Shape
from rltune.forecast.ranks import rank_plan
from rltune.spec.keys import typed
from rltune.spec.load import load_sweep

# Layers 2, D 8, I 16, Q 8, K 4, V 10
SMALL = Shape(layers=2, hidden=8, inner=16, queries=8, keys=4, vocabulary=10)
EMBEDDINGS = 4 * 10 * 8  # bytes that are whole while they compute, or go over to an engine


@pytest.fixture
def config(tmp_path):
    """Return a config of GAE with a critic of its own and a KL term: three models, two learners."""
    return load_sweep(write_sweep(tmp_path)).conditions[1].config


def planned(config, trained=1000, **sections):
    changed = config | {name: config[name] | changes for name, changes in sections.items()}
    made = typed(changed)
    counts = {"parameters": 1000, "trained": trained}
    return rank_plan(made, SMALL, **counts), memory_plan(made, SMALL, **counts)


def test_the_policy_is_whole_and_all_else_that_lasts_is_shared(config):
    plan, alone = planned(config, resources={"ranks": 4})
    assert plan.weights == 4 * 1000 + 4 * 3 * 1000 // 4 + EMBEDDINGS
    assert plan.gradients == 4 * 2 * 1000 // 4
    assert plan.optimizer == 2 * 4 * 2 * 1000 // 4
    lasting = {"weights": 0, "gradients": 0, "optimizer": 0}
    assert replace(plan, **lasting) == replace(alone, **lasting)


def test_gpus_are_ranks_and_gates_read_the_start_in_shards(config):
    plan, _ = planned(config, resources={"gpus": 2.0}, gate={"start_kl": True})
    assert plan.weights == 4 * 1000 + 4 * 3 * 1000 // 2 + EMBEDDINGS


def test_no_rank_has_the_policy_whole_where_an_engine_of_its_own_samples(config):
    own = {"ranks": 4, "engine": "own"}
    plan, _ = planned(config, resources=own)
    assert plan.weights == 4 * 3 * 1000 // 4 + EMBEDDINGS


def test_with_adapters_the_frozen_base_is_whole_once_and_each_model_has_shards_of_it(config):
    """Policy, critic and reference use one base on one rank: 4,000 bytes."""
    lora = config["policy"]["lora"] | {"rank": 4}
    plan, alone = planned(config, trained=10, resources={"ranks": 2}, policy={"lora": lora})
    assert alone.weights == 4 * 1000 + 3 * 4 * 10
    assert plan.weights == 4 * 1000 + 4 * 10 + (3 * 4 * 1000 + 3 * 4 * 10) // 2 + EMBEDDINGS


def test_one_rank_is_the_trial(config):
    plan, alone = planned(config)
    assert plan == alone
