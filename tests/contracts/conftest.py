"""vLLM for the tests that need it; skipped where it is not installed."""

from functools import partial

import pytest
import torch
from engine_makers import NoModel, adapted, process_engine, scripted_engine
from shared_host import hosting, sampling

from rltune.policy.serve import ServedPolicy
from rltune.rollout.engine import Request, SamplingParams
from rltune.rollout.replicas import start_replicas
from rltune.rollout.shared.client import SharedEngine
from rltune.rollout.torch_engine import TorchEngine
from rltune.rollout.vllm_setup import INSTALL, vllm_version
from rltune.spec.schema.trial import LoraConfig
from rltune.trainer.engines import TorchCopyEngine

HIDDEN = 64  # with two heads of 32: vLLM has no kernel for smaller ones on a CPU
CONTEXT = 232


@pytest.fixture(scope="session")
def vllm_engine_of():
    """Return a maker of vLLM engines; all that it made are closed at the end."""
    if vllm_version() is None:
        pytest.skip(f"vLLM is not installed: {INSTALL}")
    from rltune.rollout.vllm_engine import VllmEngine
    from rltune.rollout.vllm_start import VllmSettings

    made = []

    def make(
        policy, *, lora=None, device="cpu", dtype="float32", is_own_process=False, tensor_parallel=1
    ):
        settings = VllmSettings(
            dtype, device, CONTEXT, 0.05, eager=True, sleep=True, tensor_parallel=tensor_parallel
        )
        served = ServedPolicy(policy, lora or LoraConfig())
        engine_of = partial(VllmEngine, settings=settings)
        made.append(process_engine(engine_of, served) if is_own_process else engine_of(served))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture(scope="session")
def _vllm_pair(vllm_engine_of, small_policy):
    return [vllm_engine_of(small_policy(hidden_size=HIDDEN)) for _ in range(2)]


@pytest.fixture(scope="session")
def _vllm_process_pair(vllm_engine_of, small_policy, _vllm_pair):
    """The second runs in this process: where an engine runs changes nothing either."""
    engine = vllm_engine_of(small_policy(hidden_size=HIDDEN), is_own_process=True)
    yield [engine, _vllm_pair[1]]
    process, folder = engine._process, engine.folder
    engine.close()
    engine.close()
    assert process.returncode == 0
    assert not folder.exists()


@pytest.fixture(scope="session")
def _torch_process_pair(small_policy):
    """The second runs in this process, over a policy of the same weights."""
    policy = small_policy(hidden_size=HIDDEN)
    lora = LoraConfig()
    make = partial(TorchCopyEngine, lora=lora, dtype="float32", pad_id=policy.pad_id)
    engine = process_engine(make, ServedPolicy(policy, lora))
    yield [engine, TorchEngine(policy.decoder())]
    engine.close()


@pytest.fixture(scope="module")  # the other trial samples no longer than it is needed
def _torch_shared_pair(small_policy, tmp_path_factory):
    """The first is shared with a trial that samples all the time; the second has all for itself."""
    lora = LoraConfig(rank=2)
    policies = [adapted(small_policy(hidden_size=HIDDEN), lora, seed=seed) for seed in range(2)]
    pad_id = policies[0].pad_id
    make = partial(TorchCopyEngine, lora=lora, dtype="float32", pad_id=pad_id)
    with hosting(tmp_path_factory.mktemp("shared") / "engine") as host:
        ours, others = (
            SharedEngine(
                make, ServedPolicy(policy, lora), dtype=torch.float32, address=host.address
            )
            for policy in policies
        )
        asked = [Request(n, [4, 5 + n], n) for n in range(3)]
        with sampling(others, asked, SamplingParams(1.0, 8, 200)):
            yield [ours, TorchEngine(policies[0].decoder())]
        ours.close()


@pytest.fixture(scope="session")
def _scripted_process_pair():
    """The second runs in this process; the first may be closed twice."""
    engine = process_engine(scripted_engine, NoModel())
    yield [engine, scripted_engine(NoModel())]
    engine.close()
    engine.close()


@pytest.fixture(scope="session")
def _replicas_pair(_scripted_process_pair):
    """Three that share the requests, and one that has all: nothing differs."""
    make = partial(process_engine, scripted_engine, NoModel())
    shared = start_replicas([make] * 3, block=2)
    yield [shared, _scripted_process_pair[1]]
    shared.close()


@pytest.fixture
def two_engines(request):
    """Return what makes, from a fixture of two engines, a maker of engines with nothing cached.

    It gives one engine first, then the other at every call: to start one takes too long for every
    comparison.
    """

    def maker(name):
        pair, calls = request.getfixturevalue(name), []

        def make():
            calls.append(1)
            engine = pair[len(calls) > 1]
            engine.sync()
            return engine

        return make

    return maker


@pytest.fixture
def two_vllm_engines(two_engines):
    """Return such a maker of vLLM engines in this process."""
    return two_engines("_vllm_pair")
