"""Replies to an earlier attempt of a trial: read from its log, and used again without a call.

A trial that was killed makes the steps after its checkpoint again. What it asked then it asks
again, word for word, so that the log knows the answer: nothing is paid twice, and a service that
would say something else now has no say.
"""

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from rltune.judge.budget import Usage, usage_in
from rltune.judge.completion import Reply
from rltune.judge.prompt import Message
from rltune.types import Json

REPLY = "reply"
"""Outcome of a call that was answered, whether or not the answer can be read."""


def call_digest(
    messages: Sequence[Message], *, model: str, temperature: float, max_tokens: int
) -> str:
    """Return the sha256 hex of all that decides a reply; key and tries do not."""
    asked = {
        "model": model,
        "messages": list(messages),
        "temperature": float(temperature),
        "max_tokens": max_tokens,
    }
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


class Replay:
    """The calls of a log that were not used yet.

    Args:
        records: Of the calls, as `LlmJudge.judge` logs them, in order.

    Attributes:
        usage: Of the calls that were taken so far, failed tries before a reply included.

    """

    def __init__(self, records: Iterable[Mapping[str, Json]] = ()) -> None:
        self.usage = Usage()
        self._calls: dict[str, deque[Mapping[str, Json]]] = {}
        for record in records:
            self._calls.setdefault(str(record.get("digest")), deque()).append(record)

    def take(self, digest: str) -> Reply | None:
        """Return the next reply to a call; None when the log has none (left).

        A failed call has no reply: it is skipped, and its cost is counted.
        """
        calls = self._calls.get(digest, deque())
        while calls:
            record = calls.popleft()
            cost = usage_in([record])
            self.usage += cost
            if record.get("outcome") == REPLY:
                return Reply(str(record["reply"]), cost.tokens, record.get("is_cut") is True)
        return None
