"""The language-model judge of a trial: episodes in, verdicts out, every call in `judge.jsonl`."""

from collections.abc import Sequence
from dataclasses import dataclass

from rltune.errors import TrialError
from rltune.judge.budget import Spent, spent_in
from rltune.judge.client import LlmJudge
from rltune.judge.prompt import JudgeRequest
from rltune.judge.verdicts import VerdictStatus
from rltune.spec.schema_attribution import JudgeConfig
from rltune.store.jsonl import append_jsonl, read_jsonl
from rltune.store.rundir import TrialDir
from rltune.trainer.job import Job
from rltune.types import Episode, Json

Flags = tuple[bool, ...] | None
"""GOOD or BAD for each turn of an episode; None for an episode that was not judged."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What the judge said.

    Attributes:
        flags: One entry per episode, in order.
        metrics: `adca/judge_*`: calls, tokens, and how many were not judged, by reason.

    """

    flags: list[Flags]
    metrics: dict[str, float]


class TrialJudge:
    """Asks the judge of one trial, within the trial's budget of calls and tokens.

    What was spent is read off the log, which is never cut: a trial that was killed has spent what
    its checkpoint does not know.

    Args:
        config: The service and the limits.
        trial: Holds the log.
        system_prompt: The task in words, shown before the first observation.
        seed: Of the draws of the waits.

    """

    def __init__(
        self, config: JudgeConfig, trial: TrialDir, *, system_prompt: str, seed: int
    ) -> None:
        self._judge = LlmJudge(**config.model_dump(), seed=seed)
        self._log = trial.judge_log
        self._system_prompt = system_prompt
        records = read_jsonl(self._log).rows if self._log.exists() else ()
        self._spent: Spent = spent_in(records)
        self._judge.require_ready()

    def ask(self, episodes: Sequence[Episode], *, step: int) -> Judged:
        """Return the verdicts on whole episodes; whatever fails leaves an episode unjudged.

        Raises:
            TrialError: The service refuses every request: the key or the model is wrong, and the
                trial would be one without attribution.

        """

        def log(record: dict[str, Json]) -> None:
            append_jsonl(self._log, {"step": step, **record})

        requests = [_request(episode, self._system_prompt) for episode in episodes]
        result = self._judge.judge(requests, spent=self._spent, log=log)
        self._spent = result.spent
        refused = [v for v in result.verdicts if v.status is VerdictStatus.REFUSED]
        if refused and len(refused) == len(requests):
            raise TrialError(f"the judge refused every request: {refused[0].detail}")
        return Judged([verdict.flags for verdict in result.verdicts], result.metrics)


def make_judge(job: Job) -> TrialJudge | None:
    """Return the judge of a job that asks one; None for any other.

    Raises:
        InputError: The client is not installed, or its key is not set.

    """
    attribution = job.config.attribution
    if attribution.kind != "adca" or attribution.judge != "llm":
        return None
    prompt = job.make_env().system_prompt
    return TrialJudge(attribution.llm, job.trial, system_prompt=prompt, seed=job.config.seed)


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
