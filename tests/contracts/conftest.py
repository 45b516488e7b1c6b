"""vLLM for the tests that need it; skipped where it is not installed."""

import pytest

from rltune.rollout.vllm_setup import INSTALL, vllm_version

HIDDEN = 64  # with two heads of 32: vLLM has no kernel for smaller ones on a CPU
CONTEXT = 232


@pytest.fixture(scope="session")
def vllm_engine_of():
    """Return a maker of vLLM engines; all that it made are closed at the end."""
    if vllm_version() is None:
        pytest.skip(f"vLLM is not installed: {INSTALL}")
    from rltune.policy.serve import ServedPolicy
    from rltune.rollout.vllm_engine import VllmEngine
    from rltune.rollout.vllm_start import VllmSettings
    from rltune.spec.schema import LoraConfig

    made = []

    def make(policy, *, lora=None, device="cpu"):
        settings = VllmSettings("float32", device, CONTEXT, 0.05, eager=True, sleep=True)
        made.append(VllmEngine(ServedPolicy(policy, lora or LoraConfig()), settings))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture(scope="session")
def _vllm_pair(vllm_engine_of, small_policy):
    return [vllm_engine_of(small_policy(hidden_size=HIDDEN)) for _ in range(2)]


@pytest.fixture
def two_vllm_engines(_vllm_pair):
    """Return a maker: first one engine, then the other at every call, with nothing cached.

    vLLM takes a second to start once it is loaded; that is too long for every comparison.
    """
    calls = []

    def make():
        calls.append(1)
        engine = _vllm_pair[len(calls) > 1]
        engine.sync()
        return engine

    return make
