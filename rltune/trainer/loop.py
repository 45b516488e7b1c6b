"""The trial loop: collect, filter, credit, update, gate, record. No Ray, no threads, no globals."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from torch import Tensor

from rltune.errors import InterruptedRun, TrialError
from rltune.gate import GateResult, choose_best, is_gate_step
from rltune.rollout.tokens import to_batch
from rltune.store.files import link_atomic
from rltune.store.jsonl import read_metrics
from rltune.trainer.artifacts import record_outcome
from rltune.trainer.attribution import probes
from rltune.trainer.card import write_card
from rltune.trainer.checkpoint import (
    Progress,
    newest_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)
from rltune.trainer.collapse import collapse_metrics
from rltune.trainer.collect import collect, tasks_of_step
from rltune.trainer.ending import early_stop, early_stop_metrics, overrun, trial_result
from rltune.trainer.exhibits import distributions, episode_table, filter_table
from rltune.trainer.filtering import apply_filter, filter_groups
from rltune.trainer.heldout import evaluate, task_digest
from rltune.trainer.job import Job
from rltune.trainer.judging import Judged, make_judge
from rltune.trainer.learner import Learner, make_learner
from rltune.trainer.learning import learn, without_batch
from rltune.trainer.measures import Metrics, gate_line, rollout_metrics
from rltune.trainer.memory import memory_used, trim_heap
from rltune.trainer.outcomes import fault_line, sound
from rltune.trainer.proof import prove_sync
from rltune.trainer.records import forget_after, write_episodes, write_heldout
from rltune.trainer.replays import write_replays
from rltune.types import Episode, TrialResult


def train(job: Job) -> TrialResult:
    """Run a trial to its last step, from its newest checkpoint if it has one.

    A named rule may end it before (`ending.early_stop`); that, too, is a result.

    The same job gives the same metrics bit for bit on a CPU, interrupted or not; timings aside. A
    language model that judges is asked again only what its log has no reply to.

    Raises:
        InterruptedRun: `should_stop` said so; a checkpoint was written.
        DivergedError: A loss or gradient is not finite; the last checkpoint is kept.
        StaleEngineError: The engine does not serve the trainer's weights.
        CheckpointError: There is a checkpoint of another config, or that began with another model.
        TrialError: Every episode of the first gate had a fault.
        TrainOverrunError: The training steps took longer than `budget.train_wall_s`.
        EvalOverrunError: A gate took longer than `budget.eval_wall_s`. After both there is a
            checkpoint; what had nothing left but to end is no overrun.

    """
    run = _Run(job)
    run.restore()
    if not run.progress.gates:
        run.begin()
    while not run.is_over:
        if job.should_stop():
            run.checkpoint()
            raise InterruptedRun(f"stopped at step {run.progress.step}; the same command goes on")
        run.require_walls()
        run.step()
    return run.finish()


class _Run:
    """A trial under way."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.config = job.config
        self.learner: Learner = make_learner(job.policy, job.config)
        self.progress = Progress()
        self.judge = make_judge(job)
        self._began = time.monotonic()
        self._earlier_s = 0.0
        self._saved_step: int | None = None
        self._times: dict[str, float] = {}
        self._checkpoint_s = 0.0
        self._eval_s = 0.0

    def restore(self) -> None:
        """Go back to the newest readable checkpoint and cut the records to it."""
        found, problems = newest_checkpoint(
            self.job.trial, self.learner, config_hash=self.job.config_hash
        )
        for problem in problems:
            self.job.warn(problem)
        if found is not None:
            self.progress, self._saved_step = found, found.step
            self._earlier_s = found.total_s
            self._tidy_checkpoints()  # the last attempt may have died before it did
        forget_after(self.job.trial, self.progress.step if found is not None else -1)
        self.job.tracker.resume(read_metrics(self.job.trial.metrics).rows)
        self.job.say(
            f"policy {self.job.policy.weights_sha256[:12]}, tasks {self.job.manifest.sha256[:12]}, "
            + ("from the start" if found is None else f"resumed from step {found.step}")
        )
        self._sync()

    @property
    def is_over(self) -> bool:
        """Whether no step is left to make."""
        is_last = self.progress.step >= self.config.budget.steps
        return is_last or bool(early_stop(self.progress, self.config))

    def begin(self) -> None:
        """Evaluate the untrained policy: the start that training has to beat."""
        metrics = self._gate(0)
        self._say_gate(metrics)
        self._log(0, metrics)
        self.checkpoint()

    def require_walls(self) -> None:
        """Raise when a wall limit is exceeded; the checkpoint is written first."""
        error = overrun(self.progress, self.config, eval_s=self._eval_s)
        if error is not None:
            self.checkpoint()
            raise error

    def step(self) -> None:
        """Make one training step, with its gate and checkpoint when they are due."""
        began = time.monotonic()
        step = self.progress.step + 1
        metrics, episodes = self._train_step(step)
        self._sync()
        self._count(episodes, metrics)
        self.progress = replace(
            self.progress, step=step, train_s=self.progress.train_s + time.monotonic() - began
        )
        last = step if self.is_over else self.config.budget.steps
        is_gate = is_gate_step(step, every=self.config.gate.every, last=last)
        if is_gate:
            metrics |= self._gate(step)
            self._say_gate(metrics)
        metrics |= early_stop_metrics(early_stop(self.progress, self.config))
        self._log(step, metrics)
        is_due = step % self.config.checkpoint.every == 0 or self.is_over  # a gate may end it
        if is_due or (is_gate and self._best().step == step):
            self.checkpoint()

    def finish(self) -> TrialResult:
        """Choose the checkpoint, write the DONE marker, and return the result."""
        self._count_time()
        reason = early_stop(self.progress, self.config)
        result = trial_result(
            self.job.trial, self.progress, mode=self.job.metric_mode, reason=reason
        )
        record_outcome(self.job, result)
        tasks = task_digest(self.job.manifest.heldout)  # the card first: DONE promises it
        write_card(self.job, result, self.progress.gates, tasks)
        self.job.trial.write_done(result)
        return result

    def checkpoint(self) -> None:
        """Write a checkpoint, point `best_heldout` at the gate's choice, drop old ones."""
        if self._saved_step == self.progress.step:
            return  # writing it again could only lose it
        began = time.monotonic()
        self._count_time()
        save_checkpoint(
            self.job.trial, self.learner, self.progress, config_hash=self.job.config_hash
        )
        self._saved_step = self.progress.step
        self._tidy_checkpoints()
        self._checkpoint_s = time.monotonic() - began

    def _tidy_checkpoints(self) -> None:
        trial = self.job.trial
        best = self._best().step
        if trial.checkpoint(best).exists():
            link_atomic(trial.best_heldout, trial.checkpoint(best).name)
        prune_checkpoints(trial, keep_last=self.config.checkpoint.keep_last, keep_steps=(best,))

    def _train_step(self, step: int) -> tuple[Metrics, list[Episode]]:
        config, job = self.config, self.job
        groups = config.rollout.groups
        tasks = tasks_of_step(job.manifest.train, seed=config.seed, step=step, groups=groups)
        with self._timed("collect"):
            episodes = collect(
                config,
                job.policy,
                job.engine,
                tasks,
                step=step,
                make_env=job.make_env,
                probes=probes(config.attribution, step),
            )
        job.engine.rest()
        whole = to_batch(episodes, pad_id=job.policy.pad_id)
        chosen = filter_groups(whole, groups=groups, config=config.rollout_filter)
        write_episodes(job.trial, episodes, chosen, step=step)
        self._warn_of_faults(episodes, where=f"step {step}")
        metrics: Metrics = rollout_metrics(
            episodes, chosen, groups=groups, auxiliary_names=job.make_env().auxiliary_names
        )
        metrics |= {"rollout/task_hash": task_digest(tasks)}
        metrics |= {"rollout/empty_after_filter": float(chosen.is_empty)}
        metrics |= self._collapse(episodes, step)
        steps = config.budget.steps
        keep = partial(
            write_replays, job.trial, job.policy, episodes, chosen, step=step, steps=steps
        )
        if chosen.is_empty and config.rollout_filter.on_drop == "drop":
            keep(None)
            controllers = without_batch(self.progress.controllers, metrics, config)
            self.progress = replace(self.progress, controllers=controllers)
            return metrics | {"budget/optimizer_steps": 0.0}, episodes
        batch = apply_filter(whole, chosen, on_drop=config.rollout_filter.on_drop)
        is_shown = job.tracker.shows_media and is_gate_step(
            step, every=config.gate.every, last=config.budget.steps
        )
        entropies: list[Tensor] = []
        learned = learn(
            self.learner,
            batch,
            episodes,
            config,
            self.progress.controllers,
            metrics,
            step=step,
            scale=chosen.scale,
            ask=partial(self._ask, step=step),
            timed=self._timed,
            on_entropy=entropies.append if is_shown else None,
        )
        keep((batch, learned.credit.advantages_NT))
        self.progress = replace(self.progress, controllers=learned.controllers)
        if is_shown:
            shown = distributions(entropies, job.policy.model)
            job.tracker.media(step, {"rollout/groups": filter_table(episodes, chosen), **shown})
        return metrics | learned.metrics, episodes

    def _ask(self, episodes: Sequence[Episode], *, step: int) -> Judged:
        if self.judge is None:
            raise ValueError("attribution.judge is not llm")
        with self._timed("judge"):
            return self.judge.ask(episodes, step=step)

    def _collapse(self, episodes: Sequence[Episode], step: int) -> Metrics:
        config = self.config.collapse
        if not config.every or (step - 1) % config.every:
            return {}
        with self._timed("collapse"):
            return collapse_metrics(
                self.job.policy,
                episodes,
                prompts=config.prompts,
                temperature=self.config.rollout.temperature,
            )

    def _gate(self, step: int) -> Metrics:
        job = self.job
        with self._timed("eval"):
            result = evaluate(
                self.config, job.policy, job.engine, job.manifest.heldout, make_env=job.make_env
            )
        trim_heap()
        self._eval_s = self._times["timing_s/eval"]
        if job.tracker.shows_media:
            job.tracker.media(step, {"heldout/episodes": episode_table(result.episodes)})
        metrics = result.metrics
        write_heldout(job.trial, result, step=step, temperature=self.config.gate.temperature)
        self._warn_of_faults(result.episodes, where=f"gate at step {step}")
        counted = sound(result.episodes)
        if not (counted or self.progress.gates):
            said = fault_line(result.episodes, where="the first gate")
            raise TrialError(f"{said}. There is nothing to choose a checkpoint by; repair it first")
        gate = GateResult(
            step,
            metrics[job.metric_name],
            len(counted),
            sum(episode.success for episode in counted),
        )
        self.progress = replace(self.progress, gates=(*self.progress.gates, gate))
        return metrics

    def _say_gate(self, metrics: Metrics) -> None:
        gate = self.progress.gates[-1]
        self.job.say(gate_line(metrics, gate, name=self.job.metric_name))

    def _warn_of_faults(self, episodes: Sequence[Episode], *, where: str) -> None:
        if said := fault_line(episodes, where=where):
            self.job.warn(said)

    def _best(self) -> GateResult:
        return choose_best(self.progress.gates, mode=self.job.metric_mode)

    def _count(self, episodes: Sequence[Episode], metrics: Metrics) -> None:
        """Add a step to the budget; the metrics then carry the running totals."""
        progress = self.progress
        tokens = sum(episode.n_sampled for episode in episodes)
        self.progress = replace(
            progress,
            rollouts=progress.rollouts + len(episodes),
            generated_tokens=progress.generated_tokens + tokens,
            optimizer_steps=progress.optimizer_steps + int(metrics["budget/optimizer_steps"]),
            consecutive_empty=(
                progress.consecutive_empty + 1 if metrics["rollout/empty_after_filter"] else 0
            ),
        )
        metrics |= {
            "budget/rollouts": float(self.progress.rollouts),
            "budget/generated_tokens": float(self.progress.generated_tokens),
            "budget/optimizer_steps": float(self.progress.optimizer_steps),
            "perf/tokens_per_s": tokens / max(1e-9, self._times.get("timing_s/collect", 0.0)),
        }

    def _log(self, step: int, metrics: Metrics) -> None:
        timings = self._times | {"timing_s/checkpoint": self._checkpoint_s}
        self.job.tracker.log(step, metrics | timings | memory_used() | {"time": time.time()})
        self._times, self._checkpoint_s = {}, 0.0

    def _sync(self) -> None:
        with self._timed("sync"):
            self.job.engine.sync()
            prove_sync(
                self.job.engine, self.job.policy, self.job.manifest.heldout[0], self.job.make_env()
            )

    def _count_time(self) -> None:
        total_s = self._earlier_s + time.monotonic() - self._began
        self.progress = replace(self.progress, total_s=total_s)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        key = f"timing_s/{name}"
        self._times[key] = self._times.get(key, 0.0) + time.monotonic() - began
