"""Sampling and scoring with frozen weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rltune.maths.streams import stream_seed
from rltune.policy.decode import TransformersDecoder
from rltune.policy.load import CausalLM
from rltune.remote.server.adapter import logprobs_of
from rltune.remote.server.wire import Datum, RefusedError, Sampled, write_samples
from rltune.rollout.engine import Completion, Request, SamplingParams
from rltune.rollout.torch_engine import TorchEngine
from rltune.types import StopReason


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """What one sampling request asks for."""

    prompt_ids: tuple[int, ...]
    n_samples: int
    seed: int
    max_tokens: int
    temperature: float
    stop: tuple[int, ...]
    wants_prompt_logprobs: bool

    @property
    def kind(self) -> tuple[object, ...]:
        """What must be equal for requests to be sampled in one batch."""
        return self.max_tokens, self.temperature, self.stop, self.wants_prompt_logprobs


def read_sample(asked: Mapping[str, Any], *, end_ids: tuple[int, ...], seed: int) -> SampleRequest:
    """Return a request of the wire; `seed` and `end_ids` stand where it names none.

    Raises:
        RefusedError: It asks for what this server cannot do.

    """
    params = asked["sampling_params"]
    if params.get("top_k", -1) != -1 or params.get("top_p", 1.0) != 1.0:
        raise RefusedError("this server samples the whole distribution: top_k -1 and top_p 1 only")
    extras = ("topk_prompt_logprobs", "topk_sample_logprobs", "prompt_alt_tokens_k")
    if named := [name for name in extras if asked.get(name)]:
        raise RefusedError(f"this server does not know {', '.join(named)}")
    stop = params.get("stop")
    if isinstance(stop, str) or any(isinstance(one, str) for one in stop or ()):
        raise RefusedError("this server stops at token ids, not at texts")
    ids = [token for chunk in asked["prompt"]["chunks"] for token in chunk.get("tokens", ())]
    if not ids:
        raise RefusedError("the prompt has no text tokens")
    given = params.get("seed")
    return SampleRequest(
        prompt_ids=tuple(ids),
        n_samples=asked.get("num_samples") or 1,
        seed=seed if given is None else given,
        max_tokens=params.get("max_tokens") or 1024,
        temperature=params.get("temperature", 1.0),
        stop=end_ids if stop is None else tuple(stop),
        wants_prompt_logprobs=bool(asked.get("prompt_logprobs")),
    )


@torch.no_grad()
def sample(network: CausalLM, asked: Sequence[SampleRequest], *, pad_id: int) -> list[bytes]:
    """Return the answers to requests of one kind, sampled in one batch."""
    rows = [
        Request(index, one.prompt_ids, stream_seed(one.seed, "sample", nth))
        for index, (one, nth) in enumerate((a, nth) for a in asked for nth in range(a.n_samples))
    ]
    first = asked[0]
    longest = max(len(one.prompt_ids) for one in asked) + first.max_tokens
    engine = TorchEngine(TransformersDecoder(network, pad_id=pad_id, end_ids=first.stop))
    params = SamplingParams(first.temperature, first.max_tokens, longest)
    completions = engine.generate(rows, params)
    if first.temperature not in (0.0, 1.0):
        completions = _at_temperature_1(network, rows, completions)
    answers, taken = [], 0
    for one in asked:
        own = completions[taken : taken + one.n_samples]
        taken += one.n_samples
        scores = _prompt_logprobs(network, one) if one.wants_prompt_logprobs else None
        sequences = [
            Sampled(c.token_ids, c.logprobs, c.stop_reason is StopReason.STOP) for c in own
        ]
        answers.append(write_samples(sequences, scores))
    return answers


def _at_temperature_1(
    network: CausalLM, rows: Sequence[Request], completions: Sequence[Completion]
) -> list[Completion]:
    """Return completions with logprobs at temperature 1, which Tinker reports at any."""
    data = [
        _datum((*row.prompt_ids, *one.token_ids))
        for row, one in zip(rows, completions, strict=True)
    ]
    return [
        Completion(one.token_ids, tuple(logp_T[-len(one.token_ids) :].tolist()), one.stop_reason)
        for one, logp_T in zip(completions, logprobs_of(network, data), strict=True)
    ]


def _prompt_logprobs(network: CausalLM, asked: SampleRequest) -> list[float]:
    if len(asked.prompt_ids) < 2:
        return []
    (logp_T,) = logprobs_of(network, [_datum(asked.prompt_ids)])
    return [float(one) for one in logp_T]


def _datum(ids: Sequence[int]) -> Datum:
    return Datum(tuple(ids[:-1]), {"target_tokens": torch.tensor(ids[1:])})
