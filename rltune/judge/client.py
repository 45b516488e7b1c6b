"""The language model that is asked for verdicts: its key, and one call for a batch."""

import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rltune.errors import InputError, Problem
from rltune.judge.background import in_background
from rltune.judge.budget import Meter, Usage
from rltune.judge.prompt import JudgeRequest
from rltune.judge.replay import Replay
from rltune.judge.session import Log, Session
from rltune.judge.settings import JudgeSettings
from rltune.judge.verdicts import Verdict, VerdictStatus, verdict_rates
from rltune.types import Json

_SECTION = "attribution.llm"


@dataclass(frozen=True, slots=True)
class JudgeResult:
    """What `LlmJudge.judge` gives."""

    verdicts: tuple[Verdict, ...]  # one per request, in their order
    usage: Usage  # of the whole trial so far; the next call takes it
    metrics: dict[str, float]  # `adca/judge_*`, and the mean seconds of a call


class LlmJudge(JudgeSettings):
    """Asks an OpenAI-compatible endpoint to call each step of a trajectory GOOD or BAD.

    A failure is data: a trajectory without verdicts has a status that says why, and no flags. The
    key is read from the environment at each call; it is in no attribute, log, message or result.

    The arguments are those of `JudgeSettings`.
    """

    def require_ready(self) -> None:
        """Raise unless the client is installed and the key is set: before a trial starts.

        Raises:
            InputError: One of them is missing.

        """
        if importlib.util.find_spec("openai") is None:
            what = "the judge needs the openai package, which is not installed."
            action = "Run `pip install 'rltune[judge]'`, or choose another attribution.judge."
            raise InputError(Problem(_SECTION, what, action=action))
        self._key()

    def judge(
        self,
        requests: Sequence[JudgeRequest],
        *,
        usage: Usage | None = None,
        log: Log | None = None,
        logged: Iterable[Mapping[str, Json]] = (),
    ) -> JudgeResult:
        """Return a verdict for each trajectory; equal requests are asked once.

        Blocks until all are answered or given up, `deadline_s` at most. May be called from within a
        running event loop. The arguments and errors are those of `asking`.

        """
        with self.asking(requests, usage=usage, log=log, logged=logged) as answer:
            return answer()

    @contextmanager
    def asking(
        self,
        requests: Sequence[JudgeRequest],
        *,
        usage: Usage | None = None,
        log: Log | None = None,
        logged: Iterable[Mapping[str, Json]] = (),
    ) -> Iterator[Callable[[], JudgeResult]]:
        """Ask in another thread; what is yielded waits for the verdicts, as `judge` does.

        Left by an error, or without waiting, it cuts off the calls under way; they are logged.

        Args:
            requests: The trajectories. One without turns is judged without a call.
            usage: Of the trial before, `logged` included; None is nothing.
            log: Takes one record per call, in that thread, as JSON values: `request` (index of the
                first equal one), `ask` (0, or 1 for the second request after an unreadable reply),
                `try` (from 1), `digest` (of what was asked), `outcome`, `latency_s`, `calls` (0 if
                it reached nobody), `tokens`, `is_cut`, `reply` and `detail`.
            logged: Records of an earlier attempt to judge the same: a reply in them is used
                without a call, and counts in the metrics with what it cost then.

        Raises:
            InputError: As in `require_ready`.

        """
        before = usage or Usage()
        if not any(request.turns for request in requests):
            judged = Verdict(VerdictStatus.JUDGED, ())
            result = _result((judged,) * len(requests), before, Usage(), [])
            yield lambda: result
            return
        self.require_ready()
        with in_background(self._judge(requests, before, log, Replay(logged))) as answer:
            yield answer

    async def _judge(
        self, requests: Sequence[JudgeRequest], before: Usage, log: Log | None, replay: Replay
    ) -> JudgeResult:
        meter = Meter(before, max_calls=self.max_calls, max_tokens=self.max_tokens)
        session = Session(self, meter, key=self._key(), log=log, replay=replay)
        verdicts = await session.judge_all(requests)
        cost = Usage(
            meter.usage.calls - before.calls + replay.usage.calls,
            meter.usage.tokens - before.tokens + replay.usage.tokens,
        )
        return _result(verdicts, meter.usage, cost, session.latencies_s)

    def _key(self) -> str:
        """Return the key.

        Raises:
            InputError: It is not set, or no key at all. The message never holds it.

        """
        key = os.environ.get(self.api_key_env, "").strip()
        where = f"{_SECTION}.api_key_env"
        if not key:
            what = f"the environment variable {self.api_key_env!r} is not set."
            action = "Set it to the key, or to any text for a service that needs none."
            raise InputError(Problem(where, what, action=action))
        if not (key.isascii() and key.isprintable()) or " " in key:
            what = f"the environment variable {self.api_key_env!r} holds no key: it has spaces or "
            what += "characters that no key contains."
            raise InputError(Problem(where, what, action="Set it to the key alone."))
        return key


def _result(
    verdicts: tuple[Verdict, ...], usage: Usage, cost: Usage, latencies_s: Sequence[float]
) -> JudgeResult:
    metrics = verdict_rates(verdicts)
    metrics["adca/judge_calls"] = float(cost.calls)
    metrics["adca/judge_tokens"] = float(cost.tokens)
    metrics["timing_s/judge_call"] = sum(latencies_s) / max(1, len(latencies_s))
    return JudgeResult(verdicts, usage, metrics)
