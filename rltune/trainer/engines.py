"""The rollout engine that a config names, over a policy."""

import os
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from rltune.errors import Problem, ResourceError
from rltune.policy.load import Policy
from rltune.policy.precision import DTYPES
from rltune.policy.serve import PolicyCopy, ServedPolicy, read_adapter
from rltune.policy.static_decode import decoder_of
from rltune.remote.engine import RemoteEngine
from rltune.remote.model import RemoteModel
from rltune.rollout.distant_engine import EngineMaker
from rltune.rollout.engine import Completion, Engine, Request, SamplingParams
from rltune.rollout.engine_process import ProcessEngine
from rltune.rollout.replicas import engine_name, start_replicas
from rltune.rollout.shared.client import SharedEngine
from rltune.rollout.shared.host import SHARED, EnginePlace, first_gpu
from rltune.rollout.torch_engine import TorchEngine
from rltune.rollout.vllm_engine import VllmEngine
from rltune.rollout.vllm_start import ServableModel, VllmSettings
from rltune.spec.schema.trial import LoraConfig, TrialConfig


def make_engine(config: TrialConfig, policy: Policy, place: EnginePlace | None = None) -> Engine:
    """Return the engine of `rollout.engine`, serving the policy's weights of now.

    Args:
        config: Resolved config.
        policy: What it serves.
        place: Where the engine is that trials share; None makes one for this trial alone.

    Raises:
        InputError: It is not installed, or cannot serve this policy.
        EngineDiedError: It is in another process, which ended.

    """
    if isinstance(policy.model, RemoteModel):
        return RemoteEngine(policy.model, policy.end_ids)
    if config.resources.engine == "own":
        return _own_engines(config, policy)
    if config.resources.engine == SHARED:
        return _shared_engine(config, policy, place)
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


def _shared_engine(config: TrialConfig, policy: Policy, place: EnginePlace | None) -> Engine:
    """Return the engine that trials share, or the same one in a process for this trial alone."""
    served = ServedPolicy(policy, config.policy.lora)
    if place is None:
        gpu = first_gpu() if config.resources.gpus else ""
        make, dtype = _maker(config, policy)
        return ProcessEngine(make, served, dtype=dtype, gpu=gpu)
    make, dtype = _maker(config, policy, adapters=place.seats)
    return SharedEngine(make, served, dtype=dtype, address=place.address)


def _process_engine(config: TrialConfig, policy: Policy, nth: int) -> ProcessEngine:
    """Return an engine in a process of its own, the `nth` from 0, with a copy of the weights."""
    make, dtype = _maker(config, policy)
    parts = config.rollout.vllm.tensor_parallel if config.rollout.engine == "vllm" else 1
    return ProcessEngine(
        make,
        ServedPolicy(policy, config.policy.lora),
        dtype=dtype,
        gpu=engine_gpus(config.resources.gpus, first=nth * parts, count=parts),
        name=engine_name(nth + 1, config.rollout.replicas),
    )


def _maker(
    config: TrialConfig, policy: Policy, *, adapters: int = 1
) -> tuple[EngineMaker, torch.dtype]:
    """Return what makes the engine in another process, and the format of weights on their way."""
    lora, dtype = config.policy.lora, config.policy.dtype
    if config.rollout.engine == "vllm":
        settings = _vllm_settings(config, policy.model.device.type, adapters=adapters)
        return partial(VllmEngine, settings=settings), DTYPES[dtype]
    copy = partial(TorchCopyEngine, lora=lora, dtype=dtype, pad_id=policy.pad_id)
    return copy, torch.float32  # it is rounded there as the policy rounds


def _vllm_settings(config: TrialConfig, device: str, *, adapters: int = 1) -> VllmSettings:
    vllm = config.rollout.vllm
    return VllmSettings(
        dtype=config.policy.dtype,
        device=device,
        max_context=config.rollout.max_context,
        kv_cache_gib=vllm.kv_cache_gib,
        eager=vllm.eager,
        sleep=vllm.sleep,
        tensor_parallel=vllm.tensor_parallel,
        adapters=adapters,
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
        self._adapters: dict[int, Mapping[str, Tensor]] = {}  # by seat

    def load(self, seat: int, folder: Path) -> None:
        """Take over a trial's adapter from a folder of peft's format, which is removed."""
        self._adapters[seat] = read_adapter(folder)
        shutil.rmtree(folder)

    def serve(self, seat: int) -> None:
        """Sample with a trial's adapter from now on; nothing computed before is reused."""
        self._copy.use(self._adapters[seat])
        self._engine.sync()

    def unload(self, seat: int) -> None:
        """Forget a trial's adapter, if there is one."""
        self._adapters.pop(seat, None)

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
