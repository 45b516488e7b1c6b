"""On how many common GPUs a trial fits; the model is Qwen2.5-3B in numbers."""

import pytest
from run_folders import write_sweep

from rltune.forecast.gpus import GPUS
from rltune.forecast.model_shapes import Shape
from rltune.forecast.ranks import rank_plan
from rltune.forecast.spread import is_common, spread_of
from rltune.spec.keys import typed
from rltune.spec.load import load_sweep

LARGE = Shape(
    layers=36, hidden=2048, inner=11_008, queries=2048, keys=256, vocabulary=151_936, is_tied=True
)
COUNTS = {"parameters": 3_085_938_688, "trained": 3_085_938_688}


@pytest.fixture
def make(tmp_path):
    """Return a maker of configs of PPO with a critic of its own and a KL term, on one GPU."""
    config = load_sweep(write_sweep(tmp_path)).conditions[1].config

    def make(**sections):
        sections = {"resources": {"gpus": 1.0}, **sections}
        return typed(config | {name: config[name] | own for name, own in sections.items()})

    return make


def spread(config):
    return spread_of(config, LARGE, **COUNTS)


def test_it_takes_the_fewest_ranks_whose_gpus_are_common(make):
    """12.3 GB a copy in float32: 3 of weights, 2 of gradients, 4 of AdamW's make 111 GB."""
    config = make()
    found = spread(config)
    assert found.settings == {"resources.gpus": 2}
    assert found.count == 2
    assert [gpu.name for gpu in found.gpus][:2] == ["H100", "H100 PCIe"]  # 80 GB
    changed = make(resources={"gpus": 2.0})
    assert found.memory == rank_plan(changed, LARGE, **COUNTS).fullest


def test_the_engine_vllm_gets_a_process_and_a_gpu_of_its_own(make):
    found = spread(make(rollout={"engine": "vllm"}))
    assert found.settings == {"resources.gpus": 2, "resources.engine": "own"}
    assert found.count == 3


def test_a_trial_on_ranks_is_put_on_more_of_them_or_on_none(make):
    assert spread(make(resources={"gpus": 2.0})).settings == {"resources.gpus": 4}
    most = make(resources={"gpus": 8.0}, optim={"mini_batch_size": 8})
    assert spread(most) is None


def test_what_ranks_cannot_compute_is_put_on_none(make):
    assert spread(make(loss={"kl_type": "full"})) is None
    few = make(resources={"gpus": 2.0}, optim={"mini_batch_size": 2})
    assert spread(few) is None  # four could not share two rows


def test_common_gpus():
    assert {gpu.name for gpu in GPUS if not is_common(gpu)} == {"B200", "H200", "H100 NVL"}
