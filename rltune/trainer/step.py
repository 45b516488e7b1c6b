"""One training step: collect, filter, credit, update. What is around it is in `loop`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from rltune.gate import is_gate_step
from rltune.rollout.replicas import kill
from rltune.rollout.tokens import TokenBatch, to_batch
from rltune.trainer.ahead.rollouts import Rollouts
from rltune.trainer.ahead.sampler import Sampler
from rltune.trainer.collect import collect, sampled_digest, task_digests, tasks_of_step
from rltune.trainer.controllers import Controllers
from rltune.trainer.credit.asking import asking
from rltune.trainer.credit.attribution import probes
from rltune.trainer.credit.collapse import collapse_metrics
from rltune.trainer.credit.judging import TrialJudge
from rltune.trainer.filtering import FilterResult, apply_filter, filter_groups
from rltune.trainer.heldout import task_digest
from rltune.trainer.job import Job
from rltune.trainer.lost import LostSteps
from rltune.trainer.records.episodes import write_episodes
from rltune.trainer.records.measures import Metrics, rollout_metrics
from rltune.trainer.records.media import distributions, filter_table
from rltune.trainer.records.outcomes import fault_line
from rltune.trainer.records.replays import write_replays
from rltune.trainer.stopwatch import Stopwatch
from rltune.trainer.train_state import TrainState, actor_logprobs
from rltune.trainer.update_step import StepResult, update_step, without_batch
from rltune.types import Episode
from rltune_envs.base import Task
from rltune_envs.faults import retry


@dataclass(frozen=True, slots=True)
class Trained:
    """Results of a step, besides the weights."""

    metrics: Metrics  # of its rollouts, and of the update on them
    episodes: list[Episode]  # all that were played
    controllers: Controllers  # state of everything that adapts, after the step


class TrainingStep:
    """Makes the training steps of a trial.

    Args:
        job: The trial.
        train_state: Trained in place.
        judge: Of `attribution.judge: llm`; None where no language model is asked.
        watch: Counts the time of the parts.

    """

    def __init__(
        self, job: Job, train_state: TrainState, judge: TrialJudge | None, watch: Stopwatch
    ) -> None:
        self._job, self._config = job, job.config
        self._train_state, self._judge, self._watch = train_state, judge, watch
        self._lost = LostSteps(job.warn)
        self.sampler = Sampler(
            self._sample,
            ahead=job.config.rollout.ahead,
            steps=job.config.budget.steps,
            watch=watch,
            give_up=partial(kill, job.engine),
        )

    def make(self, step: int, controllers: Controllers) -> Trained:
        """Learn from the rollouts of a step; sample those of the next one beside, if it is asked.

        Raises:
            FaultsError: Faults took too many episodes of several steps in a row.

        """
        rollouts = self.sampler.take(step)
        with self.sampler.beside(step):
            trained = self._learn(rollouts, controllers)
        return replace(trained, metrics=trained.metrics | self._sampling_metrics(rollouts))

    def _learn(self, rollouts: Rollouts, controllers: Controllers) -> Trained:
        config, job, step = self._config, self._job, rollouts.step
        groups, on_drop = config.rollout.groups, config.rollout_filter.on_drop
        tasks, played = self._tasks(step), list(rollouts.episodes)
        warn_of_faults(job, played, where=f"step {step}")
        episodes = self._lost.usable(played, step=step)
        whole = to_batch(episodes, pad_id=job.policy.pad_id)
        chosen = filter_groups(whole, groups=groups, config=config.rollout_filter)
        write_episodes(job.trial, played, chosen, step=step)
        metrics = self._measure(tasks, episodes, chosen, step)
        metrics["rollout/fault_count"] = float(sum(bool(episode.fault) for episode in played))
        record_replays = partial(
            write_replays,
            job.trial,
            job.policy,
            episodes,
            chosen,
            step=step,
            steps=config.budget.steps,
        )
        if chosen.is_empty and on_drop == "drop":
            record_replays(None)
            after = without_batch(controllers, metrics, config)
            return Trained(metrics | {"budget/optimizer_steps": 0.0}, episodes, after)
        batch = apply_filter(whole, chosen, on_drop=on_drop).to(job.policy.model.device)
        updated = self._update(batch, episodes, chosen, controllers, metrics, step)
        record_replays((batch, updated.credit.advantages_NT))
        return Trained(metrics | updated.metrics, episodes, updated.controllers)

    def _tasks(self, step: int) -> list[Task]:
        train, groups = self._job.manifest.train, self._config.rollout.groups
        return tasks_of_step(train, seed=self._config.seed, step=step, groups=groups)

    def _sample(self, step: int) -> list[Episode]:
        """Play the tasks of a step with the weights that the engine has."""
        job = self._job
        episodes = collect(
            self._config,
            job.policy,
            job.engine,
            self._tasks(step),
            step=step,
            make_env=job.make_env,
            probes=probes(self._config.attribution, step),
        )
        job.engine.release()
        return episodes

    def _sampling_metrics(self, rollouts: Rollouts) -> Metrics:
        """Return how fast a step was sampled, and how far ahead where that is asked for."""
        tokens = sum(episode.n_sampled for episode in rollouts.episodes)
        metrics: Metrics = {"perf/tokens_per_s": tokens / max(1e-9, rollouts.seconds)}
        if not self._config.rollout.ahead:
            return metrics
        beside = self.sampler.next
        if beside is not None:
            metrics["perf/ahead_s"] = beside.seconds
        return metrics | {"rollout/staleness": float(rollouts.staleness)}

    def _measure(
        self, tasks: Sequence[Task], episodes: Sequence[Episode], chosen: FilterResult, step: int
    ) -> Metrics:
        """Return the metrics of the rollouts, before anything is learned from them."""
        return {
            **rollout_metrics(
                episodes,
                chosen,
                groups=self._config.rollout.groups,
                auxiliary_names=retry(self._job.make_env).auxiliary_names,
            ),
            "rollout/task_hash": task_digest(tasks),
            "rollout/task_digests": task_digests(tasks),
            "rollout/sampled_hash": sampled_digest(episodes),
            "rollout/empty_after_filter": float(chosen.is_empty),
            **self._collapse(episodes, step),
        }

    def _collapse(self, episodes: Sequence[Episode], step: int) -> Metrics:
        config = self._config.collapse
        if not config.every or (step - 1) % config.every:
            return {}
        with self._watch.timed("collapse"):
            return collapse_metrics(
                self._job.policy, episodes, prompts=config.prompts, score=self._score
            )

    def _score(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the logprobs of sampled tokens by the weights that are trained."""
        what, state = "the signals of collapse", self._train_state
        temperature = self._config.rollout.temperature
        return state.group.everywhere(
            what, actor_logprobs, state, ids, mask, temperature=temperature
        )

    def _update(
        self,
        batch: TokenBatch,
        episodes: Sequence[Episode],
        chosen: FilterResult,
        controllers: Controllers,
        metrics: Metrics,
        step: int,
    ) -> StepResult:
        """Learn from what the filter left, and show it where the tracker wants to see it."""
        config, job = self._config, self._job
        is_shown = job.tracker.shows_media and is_gate_step(
            step, every=config.gate.every, last=config.budget.steps
        )
        entropies: list[Tensor] = []
        timed = self._watch.timed
        with asking(self._judge, batch, episodes, config, step=step, timed=timed) as ask:
            updated = update_step(
                self._train_state,
                batch,
                episodes,
                config,
                controllers,
                metrics,
                step=step,
                scale=chosen.scale,
                ask=ask,
                timed=timed,
                on_entropy=entropies.append if is_shown else None,
            )
        if is_shown:
            is_here = self._train_state.sharded is None  # else no rank has a whole gradient
            shown = distributions(entropies, job.policy.model if is_here else None)
            job.tracker.media(step, {"rollout/groups": filter_table(episodes, chosen), **shown})
        return updated


def warn_of_faults(job: Job, episodes: Sequence[Episode], *, where: str) -> None:
    """Warn of the episodes that something outside the policy spoiled, in one line."""
    if line := fault_line(episodes, where=where):
        job.warn(line)
