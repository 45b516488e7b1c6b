"""The requests of one `LlmJudge.judge`: slots, tries, waits, the second request, the deadline."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rltune.judge.budget import BudgetExhaustedError, Meter, most_tokens
from rltune.judge.completion import CallError, Reply, complete
from rltune.judge.prompt import JudgeRequest, Message, ask_again, first_messages
from rltune.judge.settings import JudgeSettings
from rltune.judge.verdicts import Verdict, VerdictError, VerdictStatus, parse_verdicts
from rltune.maths.streams import stream_seed
from rltune.types import Json

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Log = Callable[[dict[str, Json]], None]

_SHOWN = 300  # characters of a detail
_SECRET = 8  # a shorter key is a placeholder; to strike it out would garble the log
_REFUSES_ALL = (401, 403, 404)  # the key or the model: every other request would fail alike


@dataclass(frozen=True, slots=True)
class _Where:
    """Which request a call belongs to: see `LlmJudge.judge`."""

    request: int
    ask: int


class Session:
    """One batch of requests against one service; used in one event loop.

    Args:
        settings: Where the service is, and the limits.
        meter: Counts calls and tokens against the limits of the trial.
        key: The key of the service.
        log: Takes one record per call.

    """

    def __init__(self, settings: JudgeSettings, meter: Meter, *, key: str, log: Log | None) -> None:
        self._settings = settings
        self._meter = meter
        self._key = key
        self._log = log
        self._slots = asyncio.Semaphore(settings.max_concurrency)
        self._refusal = ""
        self.latencies_s: list[float] = []

    async def judge_all(self, requests: Sequence[JudgeRequest]) -> tuple[Verdict, ...]:
        """Return one verdict per request, in their order; equal requests are asked once."""
        from openai import AsyncOpenAI

        first = {request: requests.index(request) for request in dict.fromkeys(requests)}
        deadline = asyncio.get_running_loop().time() + self._settings.deadline_s
        async with AsyncOpenAI(
            api_key=self._key,
            base_url=self._settings.base_url,
            timeout=self._settings.timeout_s,
            max_retries=0,
        ) as client:
            verdicts = await asyncio.gather(
                *(self._judge(client, index, request, deadline) for request, index in first.items())
            )
        found = dict(zip(first, verdicts, strict=True))
        return tuple(found[request] for request in requests)

    async def _judge(
        self, client: "AsyncOpenAI", index: int, request: JudgeRequest, deadline: float
    ) -> Verdict:
        """Judge one trajectory; every way to fail is a status."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._ask_twice(client, index, request)
        except TimeoutError:
            detail = f"not judged within {self._settings.deadline_s:g} s"
            return Verdict(VerdictStatus.DEADLINE, detail=detail)
        except BudgetExhaustedError as error:
            return Verdict(VerdictStatus.BUDGET, detail=str(error))
        except CallError as error:
            status = VerdictStatus.NO_ANSWER if error.may_pass else VerdictStatus.REFUSED
            return Verdict(status, detail=self._line(str(error)))

    async def _ask_twice(self, client: "AsyncOpenAI", index: int, request: JudgeRequest) -> Verdict:
        """Ask, and once more after a reply that cannot be read."""
        n_steps = len(request.turns)
        if not n_steps:
            return Verdict(VerdictStatus.JUDGED, ())
        messages = first_messages(request, max_chars=self._settings.max_chars)
        problem = ""
        for ask in (0, 1):
            reply = await self._ask(client, _Where(index, ask), messages)
            try:
                return Verdict(VerdictStatus.JUDGED, parse_verdicts(reply.text, n_steps=n_steps))
            except VerdictError as error:
                limit = f"; it was cut off after {self._settings.max_reply_tokens} tokens"
                problem = str(error) + (limit if reply.is_cut else "")
            messages = ask_again(messages, reply.text, problem=problem, n_steps=n_steps)
        return Verdict(VerdictStatus.PARSE_FAILURE, detail=self._line(problem))

    async def _ask(self, client: "AsyncOpenAI", where: _Where, messages: list[Message]) -> Reply:
        """Return a reply, after as many tries as it takes; no slot is held between two."""
        tries = self._settings.max_retries + 1
        for number in range(1, tries + 1):
            try:
                return await self._call(client, where, number, messages)
            except CallError as error:
                if not error.may_pass:
                    raise
                failure = error
            if number < tries:
                await asyncio.sleep(self._wait_s(where, number, asked_s=failure.wait_s))
        count = "1 try" if tries == 1 else f"{tries} tries"
        raise CallError(failure.outcome, f"after {count}: {failure}")

    async def _call(
        self, client: "AsyncOpenAI", where: _Where, number: int, messages: list[Message]
    ) -> Reply:
        """Send one request, count it and log it, whatever becomes of it."""
        async with self._slots:
            if self._refusal:
                raise CallError("refused", self._refusal, may_pass=False)
            texts = [message["content"] for message in messages]
            most = most_tokens(texts, max_reply_tokens=self._settings.max_reply_tokens)
            await self._meter.reserve(most)
            outcome, detail, text, tokens = "cut_off", "", "", most
            start = time.monotonic()
            try:
                reply = await complete(
                    client,
                    messages,
                    model=self._settings.model,
                    temperature=self._settings.temperature,
                    max_tokens=self._settings.max_reply_tokens,
                    timeout_s=self._settings.timeout_s,
                )
                outcome, text = "reply", reply.text
                tokens = most if reply.tokens is None else reply.tokens
                return reply
            except CallError as error:
                outcome, detail = error.outcome, str(error)
                tokens = 0 if error.is_free else most
                if error.status in _REFUSES_ALL:
                    self._refusal = detail
                raise
            finally:
                latency_s = time.monotonic() - start
                self._meter.settle(most, tokens=tokens)
                self.latencies_s.append(latency_s)
                self._record(where, number, outcome, latency_s, tokens, text, detail)

    def _wait_s(self, where: _Where, number: int, *, asked_s: float) -> float:
        """Return the seconds to wait after a try: half of it sure, half drawn."""
        settings = self._settings
        seed = stream_seed(settings.seed, "judge/backoff", where.request, where.ask, number)
        drawn_s = settings.backoff_s * 2.0 ** (number - 1) * random.Random(seed).uniform(0.5, 1.0)
        return min(max(drawn_s, asked_s), settings.max_backoff_s)

    def _record(
        self,
        where: _Where,
        number: int,
        outcome: str,
        latency_s: float,
        tokens: int,
        reply: str,
        detail: str,
    ) -> None:
        if self._log is None:
            return
        self._log(
            {
                "request": where.request,
                "ask": where.ask,
                "try": number,
                "outcome": outcome,
                "latency_s": latency_s,
                "tokens": tokens,
                "reply": self._without_key(reply),
                "detail": self._line(detail),
            }
        )

    def _line(self, text: str) -> str:
        """Return the beginning of a text in one line; the key goes before anything is cut."""
        return " ".join(self._without_key(text).split())[:_SHOWN]

    def _without_key(self, text: str) -> str:
        """Strike the key out: a service may quote it in its answer."""
        return text.replace(self._key, "***") if len(self._key) >= _SECRET else text
