"""vLLM with every layer split over two processes: it samples as torch does, and leaves nothing."""

import os
import signal

import psutil
import pytest
import torch
from patience import wait_until

from rltune.errors import EngineDiedError
from rltune.policy.lora import add_adapter, trained_parameters
from rltune.rollout.engine import Request, SamplingParams
from rltune.rollout.torch_engine import TorchEngine
from rltune.spec.schema.trial import LoraConfig

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

STATED = 1e-4  # as in docs/engines.md, float32
GREEDY = SamplingParams(temperature=0.0, max_tokens=8, max_context=200)
ASKED = [Request(n, [4 + (n * i + i) % 12 for i in range(5 + 20 * n)], n) for n in range(6)]


@pytest.fixture
def served(small_policy, vllm_engine_of):
    """Return a policy with adapters, and vLLM over it whose every layer two processes share.

    All weights go over in test_contract_vllm_sweep.py.
    """
    policy, lora = small_policy(hidden_size=64), LoraConfig(rank=4)
    add_adapter(policy.model, lora, seed=0)
    return policy, vllm_engine_of(policy, lora=lora, is_own_process=True, tensor_parallel=2)


def assert_as_in_torch(engine, policy):
    got, want = (one.generate(ASKED, GREEDY) for one in (engine, TorchEngine(policy.decoder())))
    assert [c.token_ids for c in got] == [c.token_ids for c in want]
    for one, other in zip(got, want, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=STATED)


def test_it_serves_the_weights_of_now_and_a_kill_leaves_nothing(served):
    policy, engine = served
    assert_as_in_torch(engine, policy)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in trained_parameters(policy.model).values():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    engine.sync()
    assert_as_in_torch(engine, policy)

    parts = psutil.Process(engine.pid).children(recursive=True)
    assert len(parts) >= 2
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineDiedError, match="ended by signal 9"):
        engine.generate(ASKED, GREEDY)
    wait_until(lambda: not any(part.is_running() for part in parts))
