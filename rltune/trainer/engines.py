"""The rollout engine that a config names, over a policy."""

import os
from functools import partial

import torch

from rltune.errors import Problem, ResourceError
from rltune.policy.load import Policy
from rltune.policy.precision import DTYPES
from rltune.policy.serve import ServedPolicy
from rltune.remote.engine import RemoteEngine
from rltune.remote.model import RemoteModel
from rltune.rollout.engine import Engine
from rltune.rollout.engine_process import ProcessEngine
from rltune.rollout.torch_engine import TorchEngine
from rltune.rollout.vllm_engine import VllmEngine
from rltune.rollout.vllm_start import VllmSettings
from rltune.spec.schema.trial import TrialConfig


def make_engine(config: TrialConfig, policy: Policy) -> Engine:
    """Return the engine of `rollout.engine`, serving the policy's weights of now.

    Raises:
        InputError: It is not installed, or cannot serve this policy.

    """
    if isinstance(policy.model, RemoteModel):
        return RemoteEngine(policy.model, policy.end_ids)
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
    served = ServedPolicy(policy, config.policy.lora)
    if config.resources.engine == "shared":
        return VllmEngine(served, settings)
    return ProcessEngine(
        partial(VllmEngine, settings=settings),
        served,
        dtype=DTYPES[config.policy.dtype],
        gpu=engine_gpu(config.resources.gpus),
    )


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
