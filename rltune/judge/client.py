"""The language model that is asked for verdicts: one call for a batch."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rltune.judge.background import in_background
from rltune.judge.budget import Meter, Usage
from rltune.judge.prompt import JudgeRequest
from rltune.judge.replay import Replay
from rltune.judge.session import Log, Session
from rltune.judge.settings import JudgeSettings
from rltune.judge.verdicts import Verdict, VerdictStatus, verdict_rates
from rltune.types import Json


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
        meter = Meter(
            before, max_calls=self.max_calls, max_tokens=self.max_tokens, section=self.section
        )
        session = Session(self, meter, key=self.key(), log=log, replay=replay)
        verdicts = await session.judge_all(requests)
        cost = Usage(
            meter.usage.calls - before.calls + replay.usage.calls,
            meter.usage.tokens - before.tokens + replay.usage.tokens,
        )
        return _result(verdicts, meter.usage, cost, session.latencies_s)


def _result(
    verdicts: tuple[Verdict, ...], usage: Usage, cost: Usage, latencies_s: Sequence[float]
) -> JudgeResult:
    metrics = verdict_rates(verdicts)
    metrics["adca/judge_calls"] = float(cost.calls)
    metrics["adca/judge_tokens"] = float(cost.tokens)
    metrics["timing_s/judge_call"] = sum(latencies_s) / max(1, len(latencies_s))
    return JudgeResult(verdicts, usage, metrics)
