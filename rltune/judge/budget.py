"""The hard limits of a trial's judge, in calls and tokens: counted before a call, never exceeded.

The cost of a call is unknown beforehand, but its maximum is known: a token is at least one byte of
the prompt, and the reply has a limit. That much is reserved, and what was not used is given back.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rltune.types import Json

_PER_MESSAGE = 16  # tokens of chat markup around a message, at most


@dataclass(frozen=True, slots=True)
class Usage:
    """What a trial used of its judge's budget, as the log of its calls tells.

    Attributes:
        calls: Requests that reached the service, further tries and those that it answered with an
            error included: it may count and bill them. One that reached nobody is not among them.
        tokens: Tokens of prompts and replies. A call that was cut off, or did not say what it
            cost, counts with the most that it could have cost.

    """

    calls: int = 0
    tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        """Return the sum."""
        return Usage(self.calls + other.calls, self.tokens + other.tokens)


def usage_in(records: Iterable[Mapping[str, Json]]) -> Usage:
    """Return the usage of the calls in a log of `LlmJudge`, one record per call.

    A trial that was killed has used more than its checkpoint knows; its log knows all but the
    calls that were under way.
    """
    costs = [(record.get("calls", 1), record.get("tokens", 0)) for record in records]
    return Usage(sum(_count(calls) for calls, _ in costs), sum(_count(n) for _, n in costs))


def _count(value: Json) -> int:
    return value if isinstance(value, int) else 0


def most_tokens(texts: Iterable[str], *, max_reply_tokens: int) -> int:
    """Return the most tokens that a call with messages of these texts can cost."""
    prompt = sum(len(text.encode("utf-8", "surrogatepass")) + _PER_MESSAGE for text in texts)
    return prompt + max_reply_tokens


class BudgetExhaustedError(Exception):
    """A call does not fit into what is left; the message says into which limit."""


class Meter:
    """Counts the calls of one `LlmJudge.judge`; all of its methods run in one event loop.

    Args:
        usage: Of earlier steps.
        max_calls: Most calls of the whole trial.
        max_tokens: Most tokens of the whole trial.
        section: Where the limits stand, for messages.

    """

    def __init__(
        self, usage: Usage, *, max_calls: int, max_tokens: int, section: str = "attribution.llm"
    ) -> None:
        self.usage = usage
        self._section = section
        self._max_calls = max_calls
        self._max_tokens = max_tokens
        self._reserved: list[int] = []
        self._changed = asyncio.Event()

    async def reserve(self, tokens: int) -> None:
        """Set the most that a call can cost aside; wait while calls under way may give some back.

        Raises:
            BudgetExhaustedError: It does not fit, and nothing will be given back.

        """
        while True:
            has_call = self.usage.calls + len(self._reserved) < self._max_calls
            if has_call and self.usage.tokens + sum(self._reserved) + tokens <= self._max_tokens:
                self._reserved.append(tokens)
                return
            if not has_call and self.usage.calls >= self._max_calls:
                raise BudgetExhaustedError(
                    f"{self._max_calls} calls are used up; raise {self._section}.max_calls"
                )
            if not self._reserved:
                raise BudgetExhaustedError(
                    f"{self.usage.tokens} tokens are used and the next call may take {tokens} "
                    f"of {self._max_tokens}; raise {self._section}.max_tokens"
                )
            await self._changed.wait()

    def settle(self, reserved: int, *, calls: int, tokens: int) -> None:
        """Count a call that was reserved, 0 if it reached nobody; give back what it did not use."""
        self._reserved.remove(reserved)
        self.usage += Usage(calls, tokens)
        self._changed.set()
        self._changed = asyncio.Event()
