"""The rollout engine that a config names, over a policy."""

from rltune.policy.load import Policy
from rltune.policy.serve import ServedPolicy
from rltune.rollout.engine import Engine
from rltune.rollout.torch_engine import TorchEngine
from rltune.rollout.vllm_engine import VllmEngine
from rltune.rollout.vllm_start import VllmSettings
from rltune.spec.schema import TrialConfig


def make_engine(config: TrialConfig, policy: Policy) -> Engine:
    """Return the engine of `rollout.engine`, serving the policy's weights of now.

    Raises:
        InputError: It is not installed, or cannot serve this policy.

    """
    if config.rollout.engine == "torch":
        return TorchEngine(policy.decoder())
    vllm = config.rollout.vllm
    settings = VllmSettings(
        dtype=config.policy.dtype,
        device=policy.model.device.type,
        max_context=config.rollout.max_context,
        kv_cache_gib=vllm.kv_cache_gib,
        eager=vllm.eager,
        sleep=vllm.sleep,
    )
    return VllmEngine(ServedPolicy(policy, config.policy.lora), settings)
