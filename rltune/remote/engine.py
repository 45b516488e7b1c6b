"""Sampling by a training service: token ids in, sampled ids and their logprobs out."""

from collections.abc import Sequence
from typing import Any

from rltune.errors import RemoteError
from rltune.maths.streams import stream_seed
from rltune.remote.model import RemoteModel
from rltune.rollout.engine import Completion, Request, SamplingParams, cut_reason
from rltune.types import StopReason


class RemoteEngine:
    """Samples from a snapshot of an adapter, taken at each sync.

    A turn's seed is drawn from the conversation's seed and the length of its context: with one seed
    for all turns a service would repeat its draws.

    Args:
        model: The adapter.
        end_ids: Ids that end a response.

    """

    def __init__(self, model: RemoteModel, end_ids: tuple[int, ...]) -> None:
        self._model, self._end_ids = model, end_ids
        self._sampler: Any = None

    def sync(self) -> None:
        """Take a snapshot of the weights."""
        self._sampler = self._model.sampler()

    def release(self) -> None:
        """Do nothing: nothing is held here."""

    def close(self) -> None:
        """End the session."""
        self._model.session.close()

    def generate(self, requests: Sequence[Request], params: SamplingParams) -> list[Completion]:
        """Sample one response per request; all are asked for before the first is awaited."""
        if self._sampler is None:
            self.sync()
        calls = [self._ask(request, params) for request in requests]
        return [
            Completion((), (), StopReason.CONTEXT) if call is None else self._read(call, params)
            for call in calls
        ]

    def _ask(self, request: Request, params: SamplingParams) -> Any:
        """Send a request; None when its prompt fills the context."""
        import tinker

        room = min(params.max_tokens, params.max_context - len(request.prompt_ids))
        if room <= 0:
            return None
        self._model.session.meter.count(prompt_tokens=len(request.prompt_ids))
        asked = tinker.SamplingParams(
            max_tokens=room,
            temperature=params.temperature,
            seed=stream_seed(request.seed, "turn", len(request.prompt_ids)) % 2**31,
            stop=list(self._end_ids),
        )
        prompt = tinker.ModelInput.from_ints(list(request.prompt_ids))
        return self._sampler.sample(prompt, 1, asked)

    def _read(self, call: Any, params: SamplingParams) -> Completion:
        (sequence,) = self._model.session.wait(call, "sample").sequences
        ids, logprobs = tuple(sequence.tokens), tuple(sequence.logprobs or ())
        self._model.session.meter.count(sampled_tokens=len(ids))
        is_ended = bool(ids) and ids[-1] in self._end_ids
        if len(logprobs) != len(ids) or (sequence.stop_reason == "stop" and not is_ended):
            raise RemoteError(
                f"the training service returned {len(ids)} tokens with {len(logprobs)} logprobs, "
                f"ended by {sequence.stop_reason}: a response must have a logprob for each token "
                "and end with its stop token. Use a service that keeps to the Tinker protocol."
            )
        reason = StopReason.STOP if is_ended else cut_reason(len(ids), params)
        return Completion(ids, logprobs, reason)
