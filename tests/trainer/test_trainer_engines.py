"""Engines in a process of their own: their GPU, and that they sample the same there.

What a machine has is said, not asked.
"""

import pytest
import torch
from small_config import config_of

from rltune.errors import ResourceError
from rltune.policy.lora import add_adapter
from rltune.policy.serve import ServedPolicy
from rltune.rollout.engine import Request, SamplingParams
from rltune.rollout.engine_process import ProcessEngine
from rltune.rollout.torch_engine import TorchEngine
from rltune.spec.schema.trial import LoraConfig
from rltune.trainer.engines import TorchCopyEngine, engine_gpu, make_engine


@pytest.mark.parametrize(
    ("visible", "gpus", "own"), [("3,5", 1, "5"), ("GPU-a,GPU-b,GPU-c", 1, "GPU-b"), ("7", 0, "")]
)
def test_it_is_the_first_that_is_not_the_trainers(monkeypatch, visible, gpus, own):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert engine_gpu(float(gpus)) == own


def test_without_a_list_all_of_the_machine_are_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert engine_gpu(1.0) == "1"


def test_one_gpu_is_too_few(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with pytest.raises(
        ResourceError, match=r"'own' needs 2 GPUs, and this process sees 1\. Set it"
    ):
        engine_gpu(1.0)


ASKED = [Request(n, [4, 5 + n], seed=n) for n in range(6)]
PARAMS = SamplingParams(temperature=1.0, max_tokens=8, max_context=100)


def nudge(policy):
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.5)


def test_the_engine_torch_over_a_copy_samples_what_it_does_over_the_policy(small_policy):
    policy = small_policy()
    here = TorchEngine(policy.decoder())
    served = ServedPolicy(policy, LoraConfig())
    apart = TorchCopyEngine(served, lora=LoraConfig(), dtype="float32", pad_id=policy.pad_id)
    before = here.generate(ASKED, PARAMS)
    assert apart.generate(ASKED, PARAMS) == before
    nudge(policy)
    assert apart.generate(ASKED, PARAMS) == before  # until it is synced
    for engine in (here, apart):
        engine.sync()
    after = here.generate(ASKED, PARAMS)
    assert apart.generate(ASKED, PARAMS) == after != before
    apart.release()
    assert apart.generate(ASKED, PARAMS) == after


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_a_config_with_an_engine_of_its_own_has_it_in_a_process(small_policy, rank):
    config = config_of(resources__engine="own", policy__lora__rank=rank)
    policy = small_policy()
    add_adapter(policy.model, config.policy.lora, seed=0)
    engine = make_engine(config, policy)
    try:
        assert isinstance(engine, ProcessEngine)
        nudge(policy)
        engine.sync()
        want = TorchEngine(policy.decoder()).generate(ASKED, PARAMS)
        assert engine.generate(ASKED, PARAMS) == want
    finally:
        engine.close()
