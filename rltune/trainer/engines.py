"""The rollout engine that a config names, over a policy."""

import os
from collections.abc import Sequence
from functools import partial

import torch

from rltune.errors import Problem, ResourceError
from rltune.policy.load import Policy
from rltune.policy.precision import DTYPES
from rltune.policy.serve import PolicyCopy, ServedPolicy
from rltune.policy.static_decode import decoder_of
from rltune.remote.engine import RemoteEngine
from rltune.remote.model import RemoteModel
from rltune.rollout.engine import Completion, Engine, Request, SamplingParams
from rltune.rollout.engine_process import ProcessEngine
from rltune.rollout.torch_engine import TorchEngine
from rltune.rollout.vllm_engine import VllmEngine
from rltune.rollout.vllm_start import ServableModel, VllmSettings
from rltune.spec.schema.trial import LoraConfig, TrialConfig


def make_engine(config: TrialConfig, policy: Policy) -> Engine:
    """Return the engine of `rollout.engine`, serving the policy's weights of now.

    Raises:
        InputError: It is not installed, or cannot serve this policy.

    """
    if isinstance(policy.model, RemoteModel):
        return RemoteEngine(policy.model, policy.end_ids)
    if config.resources.engine == "own":
        return _process_engine(config, policy)
    if config.rollout.engine == "torch":
        return TorchEngine(policy.decoder())
    settings = _vllm_settings(config, policy.model.device.type)
    return VllmEngine(ServedPolicy(policy, config.policy.lora), settings)


def _process_engine(config: TrialConfig, policy: Policy) -> ProcessEngine:
    """Return the engine in a process of its own, with a copy of the weights."""
    served, gpu = ServedPolicy(policy, config.policy.lora), engine_gpu(config.resources.gpus)
    if config.rollout.engine == "vllm":
        settings = _vllm_settings(config, policy.model.device.type)
        make = partial(VllmEngine, settings=settings)
        return ProcessEngine(make, served, dtype=DTYPES[config.policy.dtype], gpu=gpu)
    lora, dtype = config.policy.lora, config.policy.dtype
    own = partial(TorchCopyEngine, lora=lora, dtype=dtype, pad_id=policy.pad_id)
    return ProcessEngine(own, served, dtype=torch.float32, gpu=gpu)  # rounded as the policy rounds


def _vllm_settings(config: TrialConfig, device: str) -> VllmSettings:
    vllm = config.rollout.vllm
    return VllmSettings(
        dtype=config.policy.dtype,
        device=device,
        max_context=config.rollout.max_context,
        kv_cache_gib=vllm.kv_cache_gib,
        eager=vllm.eager,
        sleep=vllm.sleep,
    )


class TorchCopyEngine:
    """The engine `torch` over a copy of the policy; made in the engine's process.

    It samples what `TorchEngine` over the policy itself does. On the GPU that it sees, if any.

    Args:
        model: The policy.
        lora: Its adapters; rank 0 is none.
        dtype: Number format of its computation.
        pad_id: Id for padding.

    """

    def __init__(self, model: ServableModel, *, lora: LoraConfig, dtype: str, pad_id: int) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._copy = PolicyCopy(model, lora=lora, dtype=dtype, device=device)
        decoder = decoder_of(self._copy.model, pad_id=pad_id, end_ids=model.end_ids)
        self._engine = TorchEngine(decoder)

    def generate(self, requests: Sequence[Request], params: SamplingParams) -> list[Completion]:
        """Sample one response per request."""
        return self._engine.generate(requests, params)

    def sync(self) -> None:
        """Take over the trainer's weights; nothing computed with older ones is reused."""
        self._copy.update()
        self._engine.sync()

    def release(self) -> None:
        """Free the cache."""
        self._engine.release()

    def close(self) -> None:
        """Free the cache."""
        self._engine.close()


def engine_gpu(gpus: float) -> str:
    """Return the GPU of an engine in a process of its own: the first that is not the trainer's.

    Where the trainer has no GPU the engine has none either.

    Raises:
        ResourceError: This process sees no more than the trainer's.

    """
    if gpus == 0:
        return ""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = given.split(",") if given else [str(n) for n in range(torch.cuda.device_count())]
    if len(seen) > gpus:
        return seen[int(gpus)]
    what = f"'own' needs {gpus + 1:g} GPUs, and this process sees {len(seen)}."
    action = "Set it to shared, or run where there are more."
    raise ResourceError(Problem("resources.engine", what, action=action))
