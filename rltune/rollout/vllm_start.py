"""Start of vLLM in a trial's process, without changing what the trainer computes there."""

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from rltune.errors import InputError, Problem
from rltune.rollout.vllm_setup import set_vllm_environment

_PROBE_ROOM = 8
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # what vLLM lays its adapter buffers out for
_MAX_ROWS = 256
_CPU_BLOCK = 32  # vLLM's own choice, 128, is longer than most prompts: nothing would be reused
_GIB = 2**30


class ServableModel(Protocol):
    """The part of a policy that the engine needs; `policy.serve` implements it."""

    end_ids: tuple[int, ...]
    adapter_rank: int

    def write_config(self, folder: Path, *, max_context: int) -> None:
        """Write config.json of the model that `weights` fills."""

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights that no adapter holds, by their checkpoint names."""

    def write_adapter(self, folder: Path) -> None:
        """Write the adapter in peft's format."""


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """Settings of vLLM."""

    dtype: str  # `float32` or `bfloat16`
    device: str  # `cpu` or `cuda`
    max_context: int  # largest context of any call, in tokens
    kv_cache_gib: float  # memory for keys and values, in GiB
    eager: bool  # run without compiling
    sleep: bool  # free the memory of the weights and the cache between `release` and the next use
    tensor_parallel: int = 1  # processes that have a part of every layer each
    adapters: int = 1  # that are loaded at a time, where there are any

    @property
    def longest(self) -> int:
        """Context that vLLM is made for: the check after a sync may need more than an episode."""
        return self.max_context + _PROBE_ROOM


def start_vllm(model: ServableModel, settings: VllmSettings, folder: Path) -> Any:
    """Return vLLM: with the frozen weights where adapters train, else with meaningless ones.

    With `tensor_parallel` above 1 it starts that many processes, which end with this one.

    vLLM before 0.26 cannot be given weights once adapters are enabled: it reads them when it loads.
    `folder` is for vLLM's files.

    Raises:
        InputError: vLLM is not installed, or cannot serve this model.

    """
    rank = model.adapter_rank
    vllm = import_vllm()
    served = folder / "model"
    served.mkdir()
    model.write_config(served, max_context=settings.longest)
    options: dict[str, Any] = {"load_format": "dummy"}  # the trainer's weights follow at once
    file = None
    if rank:
        file = write_weights(model, served, getattr(torch, settings.dtype))
        options["load_format"] = "auto"
        fitting = next((size for size in _RANKS if size >= rank), rank)
        options |= {"enable_lora": True, "max_loras": settings.adapters, "max_lora_rank": fitting}
    if settings.device == "cpu":
        options["block_size"] = _CPU_BLOCK
        # After part of a prompt vLLM puts the generator of a seed back, which it can on CUDA alone.
        options["enable_chunked_prefill"] = False
    try:
        llm = vllm.LLM(
            model=str(served),
            use_tqdm_on_load=False,
            skip_tokenizer_init=True,
            generation_config="vllm",  # no sampling defaults from a model's folder
            dtype=settings.dtype,
            max_model_len=settings.longest,
            max_num_seqs=_MAX_ROWS,
            kv_cache_memory_bytes=int(settings.kv_cache_gib * _GIB),
            gpu_memory_utilization=0.01,  # the cache has its size; no share is reserved
            enforce_eager=settings.eager,
            enable_sleep_mode=settings.sleep and settings.device != "cpu",
            enable_prefix_caching=True,
            logprobs_mode="processed_logprobs",  # of the distribution that is sampled from
            tensor_parallel_size=settings.tensor_parallel,
            distributed_executor_backend="uni" if settings.tensor_parallel == 1 else "mp",
            seed=0,
            **options,
        )
        _sample_a_token(vllm, llm)
    except Exception as error:  # vLLM raises many kinds for a model that it cannot serve
        what = f"vLLM cannot serve this policy: {_last_line(error)}."
        action = "Change rollout.vllm or policy accordingly, or set rollout.engine to torch."
        raise InputError(Problem("rollout.engine", what, action=action)) from error
    finally:
        if file is not None:
            file.unlink()
    return llm


def write_weights(model: ServableModel, folder: Path, dtype: torch.dtype) -> Path:
    """Write a checkpoint's file; return it."""
    tensors = {name: tensor.to("cpu", dtype, copy=True) for name, tensor in model.weights()}
    path = folder / "model.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    return path


def _sample_a_token(vllm: Any, llm: Any) -> None:
    """Run the model once: shapes that vLLM has no kernel for are refused only then."""
    params = vllm.SamplingParams(max_tokens=1, detokenize=False)
    llm.generate([{"prompt_token_ids": [0]}], params, use_tqdm=False)


def import_vllm() -> Any:
    """Import vLLM, quiet, offline and without processes of its own.

    Raises:
        InputError: It is not installed, or does not load.

    """
    set_vllm_environment()
    try:
        import vllm
    except Exception as error:  # a broken installation raises many kinds
        what = f"vllm does not load: {_last_line(error)}."
        action = "See docs/engines.md for how it is installed, or set rollout.engine to torch."
        raise InputError(Problem("rollout.engine", what, action=action)) from error
    return vllm


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keep what vLLM's start would change for the trainer: random states, threads, warnings."""
    states = random.getstate(), np.random.get_state()
    set_threads = torch.set_num_threads  # vLLM replaces it on a CPU
    try:
        with warnings.catch_warnings(), torch.random.fork_rng():
            warnings.simplefilter("ignore")  # those of its imports are not for its users
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_num_threads = set_threads


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}".rstrip(".")
