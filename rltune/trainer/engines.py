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
from rltune.rollout.replicas import engine_name, start_replicas
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
        return _own_engines(config, policy)
    if config.rollout.engine == "torch":
        return TorchEngine(policy.decoder())
    settings = _vllm_settings(config, policy.model.device.type)
    return VllmEngine(ServedPolicy(policy, config.policy.lora), settings)


def _own_engines(config: TrialConfig, policy: Policy) -> Engine:
    """Return `rollout.replicas` engines in a process of its own each; a single one as it is."""
    count = config.rollout.replicas
    makers = [partial(_process_engine, config, policy, nth) for nth in range(count)]
    if count == 1:
        return makers[0]()
    return start_replicas(makers, block=config.rollout.group_size)


def _process_engine(config: TrialConfig, policy: Policy, nth: int) -> ProcessEngine:
    """Return an engine in a process of its own, the `nth` from 0, with a copy of the weights."""
    lora, dtype = config.policy.lora, config.policy.dtype
    name = engine_name(nth + 1, config.rollout.replicas)
    own = partial(ProcessEngine, model=ServedPolicy(policy, lora), name=name)
    if config.rollout.engine == "vllm":
        parts = config.rollout.vllm.tensor_parallel
        settings = _vllm_settings(config, policy.model.device.type)
        make = partial(VllmEngine, settings=settings)
        gpus = engine_gpus(config.resources.gpus, first=nth * parts, count=parts)
        return own(make, dtype=DTYPES[dtype], gpu=gpus)
    copy = partial(TorchCopyEngine, lora=lora, dtype=dtype, pad_id=policy.pad_id)
    # It is rounded there as the policy rounds.
    return own(copy, dtype=torch.float32, gpu=engine_gpus(config.resources.gpus, first=nth))


def _vllm_settings(config: TrialConfig, device: str) -> VllmSettings:
    vllm = config.rollout.vllm
    return VllmSettings(
        dtype=config.policy.dtype,
        device=device,
        max_context=config.rollout.max_context,
        kv_cache_gib=vllm.kv_cache_gib,
        eager=vllm.eager,
        sleep=vllm.sleep,
        tensor_parallel=vllm.tensor_parallel,
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


def engine_gpus(gpus: float, *, first: int = 0, count: int = 1) -> str:
    """Return the GPUs of an engine in a process of its own, behind those of the trainer.

    Where the trainer has no GPU the engine has none either.

    Args:
        gpus: Of the trainer.
        first: Those of other engines that come before.
        count: Of this engine.

    Raises:
        ResourceError: This process sees fewer.

    """
    if gpus == 0:
        return ""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = given.split(",") if given else [str(n) for n in range(torch.cuda.device_count())]
    begin = int(gpus) + first
    if len(seen) >= begin + count:
        return ",".join(seen[begin : begin + count])
    what = f"'own' needs {begin + count} GPUs, and this process sees {len(seen)}."
    action = "Set it to shared, or run where there are more."
    raise ResourceError(Problem("resources.engine", what, action=action))
