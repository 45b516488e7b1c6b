"""vLLM in this process: weights of its own, which follow the trainer's at every sync.

What vLLM computes differs from the trainer by rounding; docs/engines.md states by how much. vLLM
starts no process unless its layers are split: those end with this one.
"""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from rltune.maths.streams import stream_seed
from rltune.rollout.engine import (
    Batching,
    Completion,
    Request,
    SamplingParams,
    cut_reason,
)
from rltune.rollout.vllm_start import (
    ServableModel,
    VllmSettings,
    start_vllm,
    undisturbed,
    write_weights,
)
from rltune.scratch import Scratch, make_scratch
from rltune.types import StopReason

# A shutdown ends the process group that all engines of a process share: the last one does it.
_ALIVE: set[int] = set()
_ENDED: list[Any] = []


class VllmEngine:
    """Engine over vLLM's own copy of the weights.

    With adapters, a sync loads the new one under a new name, which is part of vLLM's key for cached
    prefixes, and drops the old one. With full weights it overwrites them where they are. The cache
    is emptied either way.

    Raises:
        InputError: vLLM is not installed, or cannot serve this model.

    """

    def __init__(self, model: ServableModel, settings: VllmSettings) -> None:
        self._model = model
        self._settings = settings
        self._scratch: Scratch | None = make_scratch("vllm")
        self._folder = self._scratch.path
        self._version = 0
        self._adapters: dict[int, Any] = {}  # by seat; without other trials there is one, 0
        self._adapter: Any = None  # the one that samples
        self._cached: dict[int, list[int]] = {}
        self._under_way: dict[str, tuple[Request, SamplingParams]] = {}  # by vLLM's id
        self._ended: dict[str, Completion] = {}  # without a token, since the last `advance`
        self._n_submitted = 0
        self._asleep = False
        self._llm: Any = None
        _ALIVE.add(id(self))
        try:
            with undisturbed():
                self._llm = start_vllm(model, settings, self._folder)
                if not model.adapter_rank:
                    self._load_weights()
            self.sync()
        except BaseException:
            self.close()
            raise

    @property
    def version(self) -> int:
        """How often the weights were taken over; part of an adapter's name."""
        return self._version

    @property
    def batching(self) -> Batching:
        """On a CPU a trial repeats to the last bit, whatever the clock says."""
        is_cpu = self._settings.device == "cpu"
        return Batching.REPEATABLE if is_cpu else Batching.CONTINUOUS

    def generate(self, requests: Sequence[Request], params: SamplingParams) -> list[Completion]:
        """Sample one response per request; vLLM decides which run together.

        Raises:
            ValueError: `max_context` is above what the engine was set up for, or requests are under
                way.

        """
        if self._under_way:
            raise ValueError(f"{len(self._under_way)} requests are under way; end them first")
        keys = self._submit(requests, params)
        completions: dict[str, Completion] = {}
        while len(completions) < len(keys):
            completions |= {key: completion for key, _, completion in self._advance()}
        return [completions[key] for key in keys]

    def submit(self, requests: Sequence[Request], params: SamplingParams) -> None:
        """Take requests; vLLM decides which run together.

        Raises:
            ValueError: `max_context` is above what the engine was set up for.

        """
        self._submit(requests, params)

    def advance(self) -> list[tuple[int, Completion]]:
        """Make one pass of vLLM: a token for each request under way, or the prompts of new ones."""
        return [(request.conversation, completion) for _, request, completion in self._advance()]

    def abandon(self) -> None:
        """Drop the requests under way: the next call must not get their answers."""
        self._ended = {}
        if self._under_way:
            self._under_way = {}
            engine = self._llm.llm_engine
            engine.abort_request(list(engine.output_processor.request_states), internal=True)
            self._forget()

    def sync(self) -> None:
        """Take over the trainer's weights; nothing computed with older ones is reused."""
        self._wake()
        if self._model.adapter_rank:
            folder = Path(tempfile.mkdtemp(prefix="adapter-", dir=self._folder))
            self._model.write_adapter(folder)
            self.load(0, folder)
            self.serve(0)
            return
        self._version += 1
        if self._version > 1:  # the first ones were loaded at the start
            self._load_weights()
        self._forget()

    def load(self, seat: int, folder: Path) -> None:
        """Take over an adapter in peft's format; vLLM may read the folder until it is replaced."""
        from vllm.lora.request import LoRARequest

        self.unload(seat)
        self._version += 1
        name = f"version-{self._version}"
        adapter = LoRARequest(name, self._version, str(folder))
        if not self._llm.llm_engine.add_lora(adapter):
            raise RuntimeError(f"vLLM did not load adapter {name}")
        self._adapters[seat] = adapter

    def serve(self, seat: int) -> None:
        """Sample with an adapter from now on; nothing computed before is reused."""
        self._adapter = self._adapters[seat]
        self._forget()

    def unload(self, seat: int) -> None:
        """Forget an adapter, if there is one."""
        adapter = self._adapters.pop(seat, None)
        if adapter is not None:
            self._llm.llm_engine.remove_lora(adapter.lora_int_id)
            shutil.rmtree(adapter.lora_path, ignore_errors=True)

    def release(self) -> None:
        """Give GPU memory back until the next use, where the settings ask for it."""
        if self._settings.sleep and not self._asleep:
            self._llm.sleep(level=1)  # the weights wait in the host's memory; the cache is dropped
            self._asleep = True
            self._cached = {}

    def close(self) -> None:
        """End vLLM and remove its files; may be called twice."""
        if self._llm is not None:
            _ENDED.append(self._llm)
            self._llm = None
        _ALIVE.discard(id(self))
        if not _ALIVE:
            while _ENDED:
                _ENDED.pop().llm_engine.engine_core.shutdown()
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

    def _load_weights(self) -> None:
        if self._settings.tensor_parallel > 1:  # each process takes its parts from a file
            dtype = getattr(torch, self._settings.dtype)
            file = write_weights(self._model, self._folder, dtype)
            try:
                self._llm.collective_rpc(_reload_from, args=(str(file),))
            finally:
                file.unlink()
            return
        self._llm.collective_rpc(
            "reload_weights", kwargs={"weights_iterator": self._model.weights()}
        )

    def _submit(self, requests: Sequence[Request], params: SamplingParams) -> list[str]:
        """Take requests; return vLLM's ids of them."""
        if params.max_context > self._settings.longest:
            raise ValueError(
                f"max_context is {params.max_context}, and this engine was set up for "
                f"{self._settings.longest} tokens. Make it with a larger max_context."
            )
        room = [min(params.max_tokens, params.max_context - len(r.prompt_ids)) for r in requests]
        if not self._under_way and any(space > 0 for space in room):
            self._wake()
            self._forget_unless_continued(requests)
        first = self._n_submitted
        self._n_submitted += len(requests)
        keys = [str(first + place) for place in range(len(requests))]
        try:
            for key, request, space in zip(keys, requests, room, strict=True):
                self._under_way[key] = request, params
                if space > 0:
                    self._add(key, request, params, max_tokens=space)
                else:
                    self._ended[key] = Completion((), (), StopReason.CONTEXT)
        except BaseException:
            self.abandon()
            raise
        return keys

    def _add(self, key: str, request: Request, params: SamplingParams, *, max_tokens: int) -> None:
        from vllm import SamplingParams as VllmParams
        from vllm.sampling_params import RequestOutputKind

        sampling = VllmParams(
            temperature=params.temperature,
            max_tokens=max_tokens,
            seed=stream_seed(request.seed, "vllm", len(request.prompt_ids)) >> 1,
            stop_token_ids=list(self._model.end_ids),
            ignore_eos=True,  # the end tokens are the policy's, all of them and no others
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        prompt = {"prompt_token_ids": list(request.prompt_ids)}
        self._llm.llm_engine.add_request(key, prompt, sampling, lora_request=self._adapter)

    def _advance(self) -> list[tuple[str, Request, Completion]]:
        """Make one pass; return what ended, by vLLM's id."""
        ended, self._ended = self._ended, {}
        if len(self._under_way) > len(ended):
            try:
                outputs = self._llm.llm_engine.step()
            except BaseException:
                self.abandon()
                raise
            for output in outputs:
                params = self._under_way[output.request_id][1]
                ended[output.request_id] = _completion(output, self._model.end_ids, params)
        return [(key, self._end(key, completion), completion) for key, completion in ended.items()]

    def _end(self, key: str, completion: Completion) -> Request:
        request, _ = self._under_way.pop(key)
        self._cached[request.conversation] = [*request.prompt_ids, *completion.token_ids]
        return request

    def _forget_unless_continued(self, requests: Sequence[Request]) -> None:
        """Begin with an empty cache where nobody goes on with a conversation.

        A cached prefix rounds as the call did that computed it. A resumed trial, which never made
        that call, must sample the same.
        """
        for request in requests:
            cached = self._cached.get(request.conversation)
            if cached and list(request.prompt_ids[: len(cached)]) == cached:
                return
        self._forget()

    def _forget(self) -> None:
        self._cached = {}
        if not self._llm.reset_prefix_cache():
            raise RuntimeError("vLLM did not empty its prefix cache: a request is still running")

    def _wake(self) -> None:
        if self._asleep:
            self._llm.wake_up()
            self._asleep = False
            self._forget()


def _reload_from(worker: Any, path: str) -> None:
    """Overwrite the weights of one of vLLM's processes, in that process."""
    with safe_open(path, framework="pt") as file:
        weights = ((name, file.get_tensor(name)) for name in file.keys())  # noqa: SIM118
        worker.reload_weights(weights_iterator=weights)


def _completion(output: Any, end_ids: tuple[int, ...], params: SamplingParams) -> Completion:
    (sample,) = output.outputs
    ids = tuple(sample.token_ids)
    logprobs = tuple(
        float(of_place[token].logprob) for of_place, token in zip(sample.logprobs, ids, strict=True)
    )
    is_ended = bool(ids) and ids[-1] in end_ids
    reason = StopReason.STOP if is_ended else cut_reason(len(ids), params)
    return Completion(ids, logprobs, reason)
