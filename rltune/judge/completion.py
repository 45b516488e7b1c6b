"""One request to an OpenAI-compatible service: a reply, or one error that says what happened.

Nothing of the client library leaves this module, its exceptions included: they hold the request,
and the request holds the key.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rltune.judge.prompt import Message

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_READ = 2000  # bytes of a wrong answer; who shows it strikes the key out and then shortens it
_PASSES = (408, 409, 425, 429)


@dataclass(frozen=True, slots=True)
class Reply:
    """A chat completion; `tokens` is None where it does not say what it cost."""

    text: str
    tokens: int | None
    is_cut: bool


class CallError(Exception):
    """A call without a reply.

    Args:
        outcome: One word for the log.
        detail: What happened; a wrong answer is quoted as it came.
        may_pass: Another try may succeed.
        wait_s: Seconds that the service asks to wait.
        is_free: It cost no tokens: the service was not reached, or said no.
        is_sent: The service was reached, as far as is known.
        status: HTTP status, 0 without an answer.

    """

    def __init__(
        self,
        outcome: str,
        detail: str,
        *,
        may_pass: bool = True,
        wait_s: float = 0.0,
        is_free: bool = False,
        is_sent: bool = True,
        status: int = 0,
    ) -> None:
        self.outcome = outcome
        self.may_pass = may_pass
        self.wait_s = wait_s
        self.is_free = is_free
        self.is_sent = is_sent
        self.status = status
        super().__init__(detail)


def open_client(*, base_url: str, key: str, timeout_s: float) -> "AsyncOpenAI":
    """Return a client that makes one try, and takes half of its time at most to connect.

    Raises:
        CallError: None can be made for this address.

    """
    import httpx
    from openai import AsyncOpenAI

    # A service that lets nobody in is known as one before the whole time is over.
    timeout = httpx.Timeout(timeout_s, connect=timeout_s / 2)
    try:
        return AsyncOpenAI(api_key=key, base_url=base_url, timeout=timeout, max_retries=0)
    except Exception as error:  # the library's kinds; an address that passed our own checks
        raise _unsendable(error) from None


async def complete(
    client: "AsyncOpenAI",
    messages: Sequence[Message],
    *,
    model: str,
    temperature: float,
    max_tokens: int,
    timeout_s: float,
) -> Reply:
    """Return the chat completion that answers the messages: one try, at most `timeout_s` long.

    Raises:
        CallError: There is none.

    """
    try:
        # The library bounds the gap between two parts of an answer, and this bounds the whole.
        async with asyncio.timeout(timeout_s):
            answer = await client.chat.completions.with_raw_response.create(
                model=model, messages=messages, temperature=temperature, max_tokens=max_tokens
            )
    except Exception as error:  # the library's kinds, and what it meets where it writes a request
        raise _call_error(error, timeout_s=timeout_s) from None
    return _read(answer.content)


def _call_error(error: Exception, *, timeout_s: float) -> CallError:
    """Say what an exception of the client library means."""
    import httpx
    import openai

    if isinstance(error, openai.APIStatusError):
        response = error.response
        return _status_error(
            error.status_code, response.content, response.headers.get("retry-after")
        )
    cause = error.__cause__ or error
    if isinstance(error, TimeoutError | openai.APITimeoutError):
        if isinstance(cause, httpx.ConnectTimeout | httpx.PoolTimeout):
            detail = f"no connection within {timeout_s / 2:g} s"
            return CallError("timeout", detail, is_free=True, is_sent=False)
        return CallError("timeout", f"no whole answer within {timeout_s:g} s")
    if isinstance(cause, httpx.HTTPError | openai.APIConnectionError):
        is_lost = isinstance(cause, httpx.ConnectError)  # nothing was sent
        detail = f"{type(cause).__name__}: {cause}"
        return CallError("connection", detail, is_free=is_lost, is_sent=not is_lost)
    return _unsendable(cause)


def _unsendable(error: BaseException) -> CallError:
    detail = f"{type(error).__name__}: {error}"
    return CallError("unsendable", detail, may_pass=False, is_free=True, is_sent=False)


def _status_error(status: int, content: bytes, retry_after: str | None) -> CallError:
    """Say what an answer other than 200 means."""
    try:
        asked_s = max(0.0, float(retry_after or 0))
    except ValueError:  # a date; the own wait will do
        asked_s = 0.0
    return CallError(
        f"http_{status}",
        f"it answered HTTP {status}{_said(content)}",
        may_pass=status in _PASSES or status >= 500,
        wait_s=asked_s,
        is_free=True,
        status=status,
    )


def _read(content: bytes) -> Reply:
    """Return the chat completion of an answer.

    Raises:
        CallError: It holds none (a proxy may answer, too); another try may.

    """
    try:
        body = json.loads(content)
        choice = body["choices"][0]
        text = choice["message"]["content"] or ""
        usage = body.get("usage")
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        text = usage = None
    if not isinstance(text, str):
        detail = f"it answered HTTP 200 without a chat completion{_said(content)}"
        raise CallError("no_completion", detail)
    tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
    is_count = isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0
    return Reply(text, tokens if is_count else None, choice.get("finish_reason") == "length")


def _said(content: bytes) -> str:
    """Return the beginning of an answer, for a message."""
    text = content[:_READ].decode("utf-8", errors="replace").strip()
    return f": {text}" if text else ""
