"""The protocol of rollout engines: token ids in, sampled token ids and their logprobs out.

An engine may keep what it computed for a conversation and reuse it when a later prompt begins with
the same tokens; that never changes what is sampled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from rltune.types import StopReason


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling parameters, the same for all requests of a call."""

    temperature: float  # divides the logits; 0 takes the likeliest token
    max_tokens: int  # tokens per response
    max_context: int  # tokens per conversation, response included


@dataclass(frozen=True, slots=True)
class Request:
    """One response to sample.

    Attributes:
        conversation: Equal numbers, in one or several calls, continue one conversation.
        prompt_ids: The whole context so far.
        seed: Seed of this conversation's draws. The draw for the token at position p of the context
            depends on (seed, p) only, so batch-mates, retries and turns do not disturb it.

    """

    conversation: int
    prompt_ids: Sequence[int]
    seed: int


@dataclass(frozen=True, slots=True)
class Completion:
    """The response to one request.

    Attributes:
        token_ids: Exactly the sampled ids, end token included; none only when the prompt fills
            the context.
        logprobs: Log-probability of each id under the sampling distribution (at temperature 0,
            under the distribution at temperature 1).
        stop_reason: Why sampling ended.

    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop_reason: StopReason


def cut_reason(n_sampled: int, params: SamplingParams) -> StopReason:
    """Return which limit cut a response that has no end token."""
    is_full = n_sampled < params.max_tokens
    return StopReason.CONTEXT_CUT if is_full else StopReason.LENGTH


class Engine(Protocol):
    """Samples responses from the newest weights that it was synced to."""

    def generate(self, requests: Sequence[Request], params: SamplingParams) -> list[Completion]:
        """Sample one response per request, in order."""

    def sync(self) -> None:
        """Serve the trainer's current weights from now on; nothing computed before is reused."""

    def release(self) -> None:
        """Free what is not needed until the next call; that call wakes the engine again."""

    def close(self) -> None:
        """Free what the engine holds."""


class Batching(StrEnum):
    """When a request may join those under way."""

    LOCKSTEP = "lockstep"  # never: the next batch begins when all of this one have ended
    # at any time, but on no clock's word: rounding follows the batch, and a trial has to repeat
    REPEATABLE = "repeatable"
    CONTINUOUS = "continuous"  # at any time


@runtime_checkable
class StreamingEngine(Engine, Protocol):
    """An engine that takes requests while it decodes others.

    What is sampled is what `generate` samples. No two requests under way have one conversation.
    """

    @property
    def batching(self) -> Batching:
        """When a request may join those under way."""

    def submit(self, requests: Sequence[Request], params: SamplingParams) -> None:
        """Take requests; `advance` decodes them."""

    def advance(self) -> list[tuple[int, Completion]]:
        """Decode some tokens; return what ended, with its conversation. Empty if nothing did."""

    def abandon(self) -> None:
        """Drop the requests under way: nobody will ask for them."""
