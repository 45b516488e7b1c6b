"""Engines in a process of their own: their GPU, and that they sample the same there.

What a machine has is said, not asked.
"""

import pytest
import torch
from small_config import config_of

from rltune.errors import ResourceError
from rltune.policy.lora import add_adapter, trained_parameters
from rltune.policy.serve import ServedPolicy
from rltune.rollout.engine import Request, SamplingParams
from rltune.rollout.engine_process import ProcessEngine
from rltune.rollout.replicas import Replicas, replicas_of
from rltune.rollout.torch_engine import TorchEngine
from rltune.spec.schema.trial import LoraConfig
from rltune.trainer.engines import TorchCopyEngine, engine_gpus, make_engine


@pytest.mark.parametrize(
    ("visible", "gpus", "own"), [("3,5", 1, "5"), ("GPU-a,GPU-b,GPU-c", 1, "GPU-b"), ("7", 0, "")]
)
def test_it_is_the_first_that_is_not_the_trainers(monkeypatch, visible, gpus, own):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert engine_gpus(float(gpus)) == own


def test_several_engines_share_what_is_left(monkeypatch):
    """Two GPUs train; each of two engines has two more."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5")
    assert engine_gpus(2.0, first=0, count=2) == "2,3"
    assert engine_gpus(2.0, first=2, count=2) == "4,5"
    with pytest.raises(ResourceError, match=r"'own' needs 8 GPUs, and this process sees 6\."):
        engine_gpus(2.0, first=4, count=2)


def test_without_a_list_all_of_the_machine_are_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert engine_gpus(1.0) == "1"


def test_one_gpu_is_too_few(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with pytest.raises(
        ResourceError, match=r"'own' needs 2 GPUs, and this process sees 1\. Set it"
    ):
        engine_gpus(1.0)


ASKED = [Request(n, [4, 5 + n], seed=n) for n in range(6)]
PARAMS = SamplingParams(temperature=1.0, max_tokens=8, max_context=100)


def nudge(policy):
    with torch.no_grad():
        for parameter in trained_parameters(policy.model).values():
            parameter.mul_(1.5).add_(0.05)


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
@pytest.mark.parametrize(
    ("rank", "replicas", "kind"), [(0, 1, ProcessEngine), (2, 1, ProcessEngine), (2, 2, Replicas)]
)
def test_a_config_with_engines_of_their_own_has_them_in_processes(
    small_policy, rank, replicas, kind
):
    own = {"resources__engine": "own", "rollout__replicas": replicas, "rollout__group_size": 2}
    config = config_of(**own, policy__lora__rank=rank)
    policy = small_policy()
    add_adapter(policy.model, config.policy.lora, seed=0)
    engine = make_engine(config, policy)
    try:
        assert isinstance(engine, kind)
        nudge(policy)
        engine.sync()
        want = TorchEngine(policy.decoder()).generate(ASKED, PARAMS)
        assert_same(engine.generate(ASKED, PARAMS), want)
        for one in replicas_of(engine):  # each has the new weights
            assert_same(one.generate(ASKED, PARAMS), want)
    finally:
        engine.close()


def assert_same(got, want):
    """Tell the same tokens; a batch of another size rounds otherwise."""
    assert [completion.token_ids for completion in got] == [one.token_ids for one in want]
    for one, other in zip(got, want, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
