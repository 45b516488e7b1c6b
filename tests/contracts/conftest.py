"""vLLM for the tests that need it; skipped where it is not installed."""

from functools import partial

import pytest
from engine_makers import NoModel, process_engine, scripted_engine

from rltune.policy.serve import ServedPolicy
from rltune.rollout.replicas import start_replicas
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
    process, folder = engine._process, engine._folder
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
