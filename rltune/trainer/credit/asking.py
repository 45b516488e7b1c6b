"""The judge `llm` is asked before the batch is scored, and answers meanwhile."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from rltune.rollout.tokens import TokenBatch
from rltune.spec.schema.advantage import CustomAdvantageConfig
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.credit.attribution import AskJudge, rows_to_ask
from rltune.trainer.credit.estimate import episode_advantages
from rltune.trainer.credit.judging import Judged, TrialJudge
from rltune.types import Episode


@contextmanager
def asking(
    judge: TrialJudge | None,
    batch: TokenBatch,
    episodes: Sequence[Episode],
    config: TrialConfig,
    *,
    step: int,
    timed: Callable[[str], AbstractContextManager[None]],
) -> Iterator[AskJudge]:
    """Ask about the episodes of a step that credit will ask about; yield what waits for verdicts.

    The same calls are made as without the head start, and the judge has the time of scoring. A
    custom estimator, which chooses these episodes too, is called once: there credit asks itself.

    Args:
        judge: None where no language model is asked.
        batch: Rows to train on.
        episodes: All episodes of the step; `batch.episode_N` points to them.
        config: Of the trial.
        step: Training step, from 1.
        timed: Counts the time that credit waits.

    """
    about = [] if judge is None else _about(batch, episodes, config, step=step)

    def ask(wanted: Sequence[Episode]) -> Judged:
        if judge is None:
            raise ValueError("attribution.judge is not llm")
        with timed("judge"):
            return judge.ask(wanted, step=step)

    if judge is None or not about:
        yield ask
        return
    with judge.asking(about, step=step) as answer:

        def wait(wanted: Sequence[Episode]) -> Judged:
            if list(wanted) != about:
                raise ValueError("credit asks about other episodes than the judge was asked about")
            with timed("judge"):
                return answer()

        yield wait


def _about(
    batch: TokenBatch, episodes: Sequence[Episode], config: TrialConfig, *, step: int
) -> list[Episode]:
    """Return the episodes that credit will ask about, as far as they are known beforehand."""
    attribution = config.attribution
    if attribution.kind != "adca" or isinstance(config.advantage, CustomAdvantageConfig):
        return []
    advantages_N = episode_advantages(batch, config.advantage)
    rows = rows_to_ask(batch, advantages_N, attribution, step=step)
    return [episodes[row] for row in batch.rows(rows).episode_N.tolist()]
