"""The requests of one `LlmJudge.judge`: slots, tries, waits, the second request, the deadline."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from rltune.judge.budget import BudgetExhaustedError, Meter, most_tokens
from rltune.judge.completion import CallError, Reply, complete, open_client
from rltune.judge.prompt import JudgeRequest, Message, ask_again, encodable, first_messages
from rltune.judge.replay import REPLY, Replay, call_digest
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
_UNJUDGED = {"refused": VerdictStatus.REFUSED, "unsendable": VerdictStatus.UNSENDABLE}


@dataclass(frozen=True, slots=True)
class _Where:
    """Which request a call belongs to: see `LlmJudge.judge`."""

    request: int
    ask: int
    digest: str = ""


@dataclass(frozen=True, slots=True)
class _Entry:
    """What became of one call, as the log tells it."""

    outcome: str
    calls: int
    tokens: int
    reply: str = ""
    is_cut: bool = False
    detail: str = ""


class Session:
    """One batch of requests against one service; used in one event loop.

    Args:
        settings: Where the service is, and the limits.
        meter: Counts calls and tokens against the limits of the trial.
        key: The key of the service.
        log: Takes one record per call.
        replay: Replies that are known already; none of them costs a call.

    """

    def __init__(
        self, settings: JudgeSettings, meter: Meter, *, key: str, log: Log | None, replay: Replay
    ) -> None:
        self._settings = settings
        self._meter = meter
        self._key = key
        self._log = log
        self._replay = replay
        self._slots = asyncio.Semaphore(settings.max_concurrency)
        self._refusal = ""
        self.latencies_s: list[float] = []

    async def judge_all(self, requests: Sequence[JudgeRequest]) -> tuple[Verdict, ...]:
        """Return one verdict per request, in their order; equal ones are asked once.

        Equal is what the judge is shown: of two long texts the same part may be left.
        """
        messages = [first_messages(one, max_chars=self._settings.max_chars) for one in requests]
        first: dict[str, int] = {}
        firsts = [first.setdefault(one[-1]["content"], i) for i, one in enumerate(messages)]
        settings = self._settings
        deadline = asyncio.get_running_loop().time() + settings.deadline_s
        try:
            opened = open_client(
                base_url=settings.base_url, key=self._key, timeout_s=settings.timeout_s
            )
        except CallError as error:
            return (self._unjudged(error),) * len(requests)
        async with opened as client:
            verdicts = await asyncio.gather(
                *(
                    self._judge(client, i, len(requests[i].turns), messages[i], deadline)
                    for i in first.values()
                )
            )
        verdict_of = dict(zip(first.values(), verdicts, strict=True))
        return tuple(verdict_of[i] for i in firsts)

    async def reply(self, messages: list[Message]) -> Reply:
        """Return the reply to messages of the caller's own, after as many tries as it takes.

        Raises:
            CallError: There is none.
            BudgetExhaustedError: The limit of calls or tokens came first.
            TimeoutError: `deadline_s` came first.

        """
        settings = self._settings
        opened = open_client(
            base_url=settings.base_url, key=self._key, timeout_s=settings.timeout_s
        )
        async with asyncio.timeout(settings.deadline_s), opened as client:
            return await self._ask(client, _Where(0, 0), messages)

    async def _judge(
        self,
        client: "AsyncOpenAI",
        index: int,
        n_steps: int,
        messages: list[Message],
        deadline: float,
    ) -> Verdict:
        """Judge one trajectory; every way to fail is a status."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._ask_twice(client, index, n_steps, messages)
        except TimeoutError:
            detail = f"not judged within {self._settings.deadline_s:g} s"
            return Verdict(VerdictStatus.DEADLINE, detail=detail)
        except BudgetExhaustedError as error:
            return Verdict(VerdictStatus.BUDGET, detail=str(error))
        except CallError as error:
            return self._unjudged(error)

    def _unjudged(self, error: CallError) -> Verdict:
        """Return what a call without a reply leaves of a trajectory's judging."""
        status = VerdictStatus.NO_ANSWER
        if not error.may_pass:
            status = _UNJUDGED.get(error.outcome, VerdictStatus.REJECTED)
        return Verdict(status, detail=self.line(str(error)))

    async def _ask_twice(
        self, client: "AsyncOpenAI", index: int, n_steps: int, messages: list[Message]
    ) -> Verdict:
        """Ask, and once more after a reply that cannot be read."""
        if not n_steps:
            return Verdict(VerdictStatus.JUDGED, ())
        problem = ""
        for ask in (0, 1):
            reply = await self._ask(client, _Where(index, ask), messages)
            try:
                return Verdict(VerdictStatus.JUDGED, parse_verdicts(reply.text, n_steps=n_steps))
            except VerdictError as error:
                limit = f"; it was cut off after {self._settings.max_reply_tokens} tokens"
                problem = str(error) + (limit if reply.is_cut else "")
            messages = ask_again(messages, reply.text, problem=problem, n_steps=n_steps)
        return Verdict(VerdictStatus.PARSE_FAILURE, detail=self.line(problem))

    async def _ask(self, client: "AsyncOpenAI", where: _Where, messages: list[Message]) -> Reply:
        """Return a reply, after as many tries as it takes; no slot is held between two.

        A reply that the log of an earlier attempt has is taken from there.
        """
        settings = self._settings
        digest = call_digest(
            messages,
            model=settings.model,
            temperature=settings.temperature,
            max_tokens=settings.max_reply_tokens,
        )
        if (known := self._replay.take(digest)) is not None:
            return known
        where = replace(where, digest=digest)
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
            entry = _Entry(outcome="cut_off", calls=1, tokens=most)
            start = time.monotonic()
            try:
                reply = await self._send(client, messages)
                tokens = most if reply.tokens is None else reply.tokens
                entry = _Entry(REPLY, 1, tokens, reply=reply.text, is_cut=reply.is_cut)
                return reply
            except CallError as error:
                is_refusal = error.status in _REFUSES_ALL
                detail = self.line(str(error))
                tokens = 0 if error.is_free else most
                entry = _Entry(error.outcome, int(error.is_sent), tokens, detail=detail)
                if is_refusal:
                    self._refusal = detail
                    raise CallError("refused", detail, may_pass=False) from None
                raise
            finally:
                latency_s = time.monotonic() - start
                self._meter.settle(most, calls=entry.calls, tokens=entry.tokens)
                self.latencies_s.append(latency_s)
                self._record(where, number, latency_s, entry)

    async def _send(self, client: "AsyncOpenAI", messages: list[Message]) -> Reply:
        """Return the reply to one request, in a form that can be logged and sent back.

        What is logged is what is used, or a replay of the log would differ.
        """
        settings = self._settings
        reply = await complete(
            client,
            messages,
            model=settings.model,
            temperature=settings.temperature,
            max_tokens=settings.max_reply_tokens,
            timeout_s=settings.timeout_s,
        )
        return replace(reply, text=encodable(self._without_key(reply.text)))

    def _wait_s(self, where: _Where, number: int, *, asked_s: float) -> float:
        """Return the seconds to wait after a try: half of it sure, half drawn."""
        settings = self._settings
        seed = stream_seed(settings.seed, "judge/backoff", where.request, where.ask, number)
        drawn_s = settings.backoff_s * 2.0 ** (number - 1) * random.Random(seed).uniform(0.5, 1.0)
        return min(max(drawn_s, asked_s), settings.max_backoff_s)

    def _record(self, where: _Where, number: int, latency_s: float, entry: _Entry) -> None:
        if self._log is None:
            return
        call: dict[str, Json] = {
            "request": where.request,
            "ask": where.ask,
            "try": number,
            "digest": where.digest,
        }
        self._log({**call, "latency_s": latency_s, **asdict(entry)})

    def line(self, text: str) -> str:
        """Return the beginning of a text in one line; the key goes before anything is cut."""
        return " ".join(self._without_key(text).split())[:_SHOWN]

    def _without_key(self, text: str) -> str:
        """Strike the key out: a service may quote it in its answer."""
        return text.replace(self._key, "***") if len(self._key) >= _SECRET else text
