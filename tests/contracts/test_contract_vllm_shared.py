"""vLLM that trials share: each samples what it would with a vLLM of its own, to the last bit."""

from functools import partial

import pytest
import torch
from engine_makers import adapted
from patience import wait_until
from shared_host import hosting, sampling

from rltune.policy.serve import ServedPolicy
from rltune.rollout.engine import Request, SamplingParams
from rltune.rollout.shared.client import SharedEngine
from rltune.rollout.torch_engine import TorchEngine
from rltune.spec.schema.trial import LoraConfig

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

LORA = LoraConfig(rank=4)
CONTEXT = 232
FREE = SamplingParams(temperature=1.0, max_tokens=8, max_context=200)
GREEDY = SamplingParams(temperature=0.0, max_tokens=8, max_context=200)
ASKED = [Request(n, [4 + (n * i + i) % 12 for i in range(5 + 20 * n)], n) for n in range(6)]


def played(engine, meanwhile=lambda: None):
    """Return the responses of three turns; each goes on with what is cached of the one before."""
    asked, turns = ASKED, []
    for turn in range(3):
        turns.append(engine.generate(asked, FREE))
        meanwhile()
        asked = [
            Request(one.conversation, [*one.prompt_ids, *said.token_ids, 4 + turn], one.seed)
            for one, said in zip(asked, turns[-1], strict=True)
        ]
    return turns


def test_two_trials_sample_what_each_would_alone(small_policy, vllm_engine_of, tmp_path):
    from rltune.rollout.vllm_engine import VllmEngine
    from rltune.rollout.vllm_start import VllmSettings

    policies = [adapted(small_policy(hidden_size=64), LORA, seed=seed) for seed in range(2)]
    settings = VllmSettings("float32", "cpu", CONTEXT, 0.05, eager=True, sleep=False, adapters=2)
    make = partial(VllmEngine, settings=settings)
    alone = vllm_engine_of(policies[0], lora=LORA)
    want = played(alone)
    with hosting(tmp_path / "engine", threads=torch.get_num_threads()) as host:
        first, second = (
            SharedEngine(
                make, ServedPolicy(policy, LORA), dtype=torch.float32, address=host.address
            )
            for policy in policies
        )
        with sampling(second, ASKED[:2], FREE) as calls:

            def lose_the_turn():
                before = len(calls)
                wait_until(lambda: len(calls) > before + 1)

            assert played(first, lose_the_turn) == want
            adapted_more(policies[0])
            for engine in (first, alone):
                engine.sync()
            assert played(first, lose_the_turn) == played(alone) != want
        other = SharedEngine(
            make, ServedPolicy(policies[1], LORA), dtype=torch.float32, address=host.address
        )
        for engine, policy in zip((first, other), policies, strict=True):
            got, known = (
                one.generate(ASKED, GREEDY) for one in (engine, TorchEngine(policy.decoder()))
            )
            assert [c.token_ids for c in got] == [c.token_ids for c in known]
            engine.close()


def adapted_more(policy):
    """Change the adapter, as a step of training does."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_" in name:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
