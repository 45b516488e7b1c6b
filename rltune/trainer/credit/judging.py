"""The language-model judge of a trial: episodes in, verdicts out, every call in `judge.jsonl`."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rltune.errors import TrialError
from rltune.judge.budget import usage_in
from rltune.judge.client import LlmJudge
from rltune.judge.prompt import JudgeRequest
from rltune.judge.replay import REPLY
from rltune.judge.verdicts import Verdict, VerdictStatus
from rltune.spec.schema.attribution import JudgeConfig
from rltune.store.jsonl import append_jsonl, read_jsonl
from rltune.store.rundir import TrialDir
from rltune.trainer.job import Job
from rltune.types import Episode, Json
from rltune_envs.faults import retry

Flags = tuple[bool, ...] | None
"""GOOD or BAD for each turn of an episode; None for an episode that was not judged."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdicts of a judge on a batch of episodes."""

    flags: list[Flags]  # one entry per episode, in order
    # `adca/judge_*`: calls, tokens, and how many were not judged, by reason
    metrics: dict[str, float]


FRUITLESS_STEPS = 3
"""Steps of an attempt that asked and got no verdict at all, with which the trial ends. Once there
was a verdict an outage may last: its episodes keep their outcome, and a warning says so."""


class TrialJudge:
    """Asks the judge of one trial, within the trial's budget of calls and tokens.

    The log, which is never cut, holds the usage: a killed trial has used more than its checkpoint
    knows. A step that is made again takes its replies from the log and pays for none
    of them twice.

    Args:
        config: The service and the limits.
        trial: Holds the log.
        system_prompt: The task in words, shown before the first observation.
        seed: Of the random waits between retries.
        warn: Called when judging first fails, and when the budget is used up.

    """

    def __init__(
        self,
        config: JudgeConfig,
        trial: TrialDir,
        *,
        system_prompt: str,
        seed: int,
        warn: Callable[[str], None],
    ) -> None:
        self._judge = LlmJudge(**config.model_dump(), seed=seed)
        self._log = trial.judge_log
        self._system_prompt = system_prompt
        self._warn = warn
        self._warned: set[bool] = set()
        self._fruitless: list[int] | None = []
        records = read_jsonl(self._log).rows if self._log.exists() else ()
        self._was_answered = any(record.get("outcome") == REPLY for record in records)
        self._usage = usage_in(records)
        self._logged: dict[int, list[Mapping[str, Json]]] = {}
        for record in records:
            self._logged.setdefault(record.get("step", 0), []).append(record)
        self._judge.require_ready()

    def ask(self, episodes: Sequence[Episode], *, step: int) -> Judged:
        """Return the verdicts on whole episodes, as what `asking` yields does."""
        with self.asking(episodes, step=step) as answer:
            return answer()

    @contextmanager
    def asking(self, episodes: Sequence[Episode], *, step: int) -> Iterator[Callable[[], Judged]]:
        """Ask about whole episodes while the caller does something else.

        What is yielded waits for the verdicts; whatever fails leaves an episode unjudged. It raises
        TrialError where the service refuses every request, as the key or the model is wrong, or
        none of the first steps that asked got a verdict: the trial would be one without
        attribution.
        """

        def log(record: dict[str, Json]) -> None:
            append_jsonl(self._log, {"step": step, **record})

        requests = [_request(episode, self._system_prompt) for episode in episodes]
        logged = self._logged.pop(step, ())

        def judged() -> Judged:
            result = answer()
            self._usage = result.usage
            asked = [v for v, r in zip(result.verdicts, requests, strict=True) if r.turns]
            self._warn_or_end(asked, step=step)
            return Judged([verdict.flags for verdict in result.verdicts], result.metrics)

        with self._judge.asking(requests, usage=self._usage, log=log, logged=logged) as answer:
            yield judged

    def _warn_or_end(self, asked: Sequence[Verdict], *, step: int) -> None:
        """Warn of what failed for the first time; end a trial that has no judge."""
        failed = [verdict for verdict in asked if verdict.status is not VerdictStatus.JUDGED]
        refused = [verdict for verdict in failed if verdict.status is VerdictStatus.REFUSED]
        for is_budget in (False, True):
            part = [v for v in failed if (v.status is VerdictStatus.BUDGET) == is_budget]
            if part and is_budget not in self._warned:
                self._warned.add(is_budget)
                self._warn(_warning(part, len(asked), step=step, is_budget=is_budget))
        if len(failed) < len(asked):
            self._fruitless = None
        elif refused:
            raise TrialError(f"the judge refused every request: {refused[0].detail}")
        elif self._was_answered and all(v.status is VerdictStatus.BUDGET for v in failed):
            return  # an earlier attempt used the budget up, and was not ended by that
        elif asked and self._fruitless is not None:
            self._fruitless.append(step)
            if len(self._fruitless) == FRUITLESS_STEPS:
                steps = ", ".join(map(str, self._fruitless))
                raise TrialError(
                    f"the judge gave no verdict in the first {FRUITLESS_STEPS} steps that asked "
                    f"it ({steps}): {_reasons(failed)}. Repair the service, or attribution.llm; "
                    "the same command then goes on"
                )


def _warning(failed: Sequence[Verdict], n_asked: int, *, step: int, is_budget: bool) -> str:
    """Return what a person should know when judging fails for the first time."""
    head = f"step {step}: {len(failed)} of {n_asked} episodes asked about were not judged"
    if is_budget:
        return f"{head}, and few or none will be from here on: {failed[0].detail}"
    tail = "warned once: adca/judge_* counts these and later ones, which keep their outcome"
    return f"{head}: {_reasons(failed)} ({tail})"


def _reasons(failed: Sequence[Verdict]) -> str:
    """Return how often each status came, and the detail of the last one."""
    counts = Counter(verdict.status.value for verdict in failed)
    shown = ", ".join(f"{name} {count}" for name, count in counts.items())
    return f"{shown}; the last: {failed[-1].detail}"


def make_judge(job: Job) -> TrialJudge | None:
    """Return the judge of a job whose verdicts have weight; None for any other job.

    Raises:
        InputError: The client is not installed, or its key is not set.

    """
    attribution = job.config.attribution
    if attribution.kind != "adca" or not attribution.asks_llm:
        return None
    return TrialJudge(
        attribution.llm,
        job.trial,
        system_prompt=retry(job.make_env).system_prompt,
        seed=job.config.seed,
        warn=job.warn,
    )


def _request(episode: Episode, system_prompt: str) -> JudgeRequest:
    """Return an episode as the judge reads it: what was done, and what followed."""
    turns = episode.turns
    first = turns[0].observation if turns else ""
    seen = [turn.observation for turn in turns[1:]] + [""] * bool(turns)  # the last is not kept
    return JudgeRequest(
        task=f"{system_prompt}\n{first}".strip(),
        turns=tuple(zip((turn.response for turn in turns), seen, strict=True)),
        score=episode.reward,
        is_success=episode.success,
    )
