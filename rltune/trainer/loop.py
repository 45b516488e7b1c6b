"""The trial loop: steps, gates, checkpoints, records. No Ray, no threads, no globals."""

import time
from dataclasses import replace

from torch import Tensor

from rltune.errors import InterruptedRun, TrialError
from rltune.gate import GateResult, choose_best, is_gate_step
from rltune.remote.model import RemoteModel
from rltune.rollout.replicas import engine_name, replicas_of
from rltune.store.files import link_atomic
from rltune.store.jsonl import read_metrics
from rltune.trainer.ahead.rollouts import read_rollouts
from rltune.trainer.checkpoint import (
    Progress,
    newest_checkpoint,
    prune_checkpoints,
    save_checkpoint,
    with_updates,
)
from rltune.trainer.credit.judging import make_judge
from rltune.trainer.ending import (
    early_stop,
    early_stop_metrics,
    overrun,
    overspent,
    trial_result,
)
from rltune.trainer.heldout import HeldoutResult, evaluate, start_kl, task_digest
from rltune.trainer.job import Job
from rltune.trainer.memory import keep_heap, memory_used, trim_heap
from rltune.trainer.ranks.handover import hand_over
from rltune.trainer.records.artifacts import record_outcome
from rltune.trainer.records.episodes import forget_after, write_heldout
from rltune.trainer.records.measures import Metrics, gate_line
from rltune.trainer.records.media import episode_table
from rltune.trainer.records.model_card import write_card
from rltune.trainer.records.outcomes import fault_line, is_measured, valid
from rltune.trainer.step import Trained, TrainingStep, warn_of_faults
from rltune.trainer.stopwatch import Stopwatch
from rltune.trainer.sync_check import check_sync, probe_prompt
from rltune.trainer.train_state import TrainState, actor_logprobs, make_train_state
from rltune.trainer.trial_warnings import cut_warnings
from rltune.types import TrialResult
from rltune_envs.faults import retry


def train(job: Job) -> TrialResult:
    """Run a trial to its last step, from its newest checkpoint if it has one.

    A named rule may end it before (`ending.early_stop`); that, too, is a result.

    The same job gives the same metrics bit for bit on a CPU, interrupted or not; timings aside. A
    language model that judges is asked again only what its log has no reply to.

    Raises:
        InterruptedRun: `should_stop` returned true, or the sweep's budget is spent; a checkpoint
            was written.
        DivergedError: A loss or gradient is not finite; the last checkpoint is kept.
        StaleEngineError: The engine does not serve the trainer's weights.
        CheckpointError: There is a checkpoint of another config, or that began with another model.
        TrialError: Every episode of the first gate had a fault.
        TrainOverrunError: The training steps took longer than `budget.train_wall_s`, or the service
            was asked for more than `trainer.max_requests` or `trainer.max_cost`.
        EvalOverrunError: A gate took longer than `budget.eval_wall_s`. After both there is a
            checkpoint; what had nothing left but to end is no overrun.

    """
    keep_heap()
    run = _Run(job)
    run.restore()
    if not run.progress.gates:
        run.begin()
    while not run.is_over:
        if job.should_stop():
            run.checkpoint()
            raise InterruptedRun(f"stopped at step {run.progress.step}; the same command goes on")
        run.require_limits()
        run.step()
    return run.finish()


class _Run:
    """A trial under way."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.config = job.config
        self.train_state: TrainState = make_train_state(job.policy, job.config, job.group)
        self.progress = Progress()
        self.watch = Stopwatch()
        self.training = TrainingStep(job, self.train_state, make_judge(job), self.watch)
        self._probe = retry(self._make_probe)
        self._began = time.monotonic()
        self._earlier_s = 0.0
        self._saved_step: int | None = None
        self._checkpoint_s = 0.0
        self._eval_s = 0.0

    def restore(self) -> None:
        """Go back to the newest readable checkpoint and cut the records to it."""
        restored, problems = newest_checkpoint(
            self.job.trial, self.train_state, config_hash=self.job.config_hash
        )
        for problem in problems:
            self.job.warn(problem)
        if restored is not None:
            self.progress, self._saved_step = restored, restored.step
            self._earlier_s = restored.total_s
            self.training.sampler.next = read_rollouts(self.job.trial.checkpoint(restored.step))
            self._tidy_checkpoints()  # the last attempt may have died before it did
        forget_after(self.job.trial, self.progress.step if restored is not None else -1)
        self.job.tracker.resume(read_metrics(self.job.trial.metrics).rows)
        self.job.say(
            f"policy {self.job.policy.weights_sha256[:12]}, tasks {self.job.manifest.sha256[:12]}, "
            + ("from the start" if restored is None else f"resumed from step {restored.step}")
        )
        if why := self.train_state.why_rows:
            self.job.say(f"rows that share a prefix are computed apart: {why}")
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
        for warning in cut_warnings(metrics, self.config):
            self.job.warn(warning)
        self._log(0, metrics)
        self.checkpoint()

    def require_limits(self) -> None:
        """Raise when a limit of time, calls or money is reached, behind a checkpoint."""
        error = overrun(self.progress, self.config, eval_s=self._eval_s) or self._overspent()
        if error is not None:
            self.checkpoint()
            raise error

    def _overspent(self) -> TrialError | InterruptedRun | None:
        model = self.job.policy.model
        if not isinstance(model, RemoteModel):
            return None
        if why := self.job.overspent():
            what = f"stopped at step {self.progress.step}: {why}"
            return InterruptedRun(f"{what}; with a larger one the same command goes on")
        meter = model.session.meter
        return overspent(meter.total, meter.price, self.progress, self.config)

    def step(self) -> None:
        """Make one training step, with its gate and checkpoint when they are due."""
        began = time.monotonic()
        step = self.progress.step + 1
        trained = self.training.make(step, self.progress.controllers)
        self.progress = replace(self.progress, controllers=trained.controllers)
        self._sync()
        metrics = trained.metrics | self._count(trained)
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
            self.job.trial, self.config, self.progress, mode=self.job.metric.mode, reason=reason
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
            self.job.trial,
            self.train_state,
            self.progress,
            config_hash=self.job.config_hash,
            rollouts=self.training.sampler.next,
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

    def _gate(self, step: int) -> Metrics:
        job = self.job
        trim_heap()  # what the update freed would stay beside what the gate needs
        with self.watch.timed("eval"):
            result = evaluate(
                self.config,
                job.policy,
                job.engine,
                job.manifest.heldout,
                make_env=job.make_env,
                step=step,
            )
            metrics = result.metrics | self._start_kl(result)
        trim_heap()
        self._eval_s = self.watch.seconds("eval")
        if job.tracker.shows_media:
            job.tracker.media(step, {"heldout/episodes": episode_table(result.episodes)})
        write_heldout(job.trial, result, step=step, temperature=self.config.gate.temperature)
        warn_of_faults(job, result.episodes, where=f"gate at step {step}")
        counted = valid(result.episodes)
        if not (self.progress.gates or is_measured(metrics, job.metric.name, counted)):
            faults = fault_line(result.episodes, where="the first gate")
            raise TrialError(
                f"{faults}. There is nothing to choose a checkpoint by; repair it first"
            )
        gate = GateResult(
            step,
            metrics[job.metric.name],
            len(counted),
            sum(episode.success for episode in counted),
            lost=len(result.episodes) - len(counted),
        )
        self.progress = replace(self.progress, gates=(*self.progress.gates, gate))
        return metrics

    def _start_kl(self, result: HeldoutResult) -> Metrics:
        state = self.train_state
        if state.start is None:
            return {}
        what = "the KL to the start"
        kl = state.group.everywhere(what, start_kl, state, result.episodes, self.config)
        return {"heldout/start_kl": kl}

    def _say_gate(self, metrics: Metrics) -> None:
        gate = self.progress.gates[-1]
        self.job.say(gate_line(metrics, gate, name=self.job.metric.name))

    def _best(self) -> GateResult:
        return choose_best(self.progress.gates, mode=self.job.metric.mode)

    def _count(self, trained: Trained) -> Metrics:
        """Add a step to the budget; return the running totals."""
        progress, episodes, metrics = self.progress, trained.episodes, trained.metrics
        tokens = sum(episode.n_sampled for episode in episodes)
        progress = with_updates(progress, self.train_state)
        self.progress = replace(
            progress,
            rollouts=progress.rollouts + len(episodes),
            generated_tokens=progress.generated_tokens + tokens,
            optimizer_steps=progress.optimizer_steps + int(metrics["budget/optimizer_steps"]),
            consecutive_empty=(
                progress.consecutive_empty + 1 if metrics["rollout/empty_after_filter"] else 0
            ),
        )
        return {
            "budget/rollouts": float(self.progress.rollouts),
            "budget/generated_tokens": float(self.progress.generated_tokens),
            "budget/optimizer_steps": float(self.progress.optimizer_steps),
            "budget/policy_updates": float(self.progress.policy_updates),
            "budget/critic_updates": float(self.progress.critic_updates),
        }

    def _log(self, step: int, metrics: Metrics) -> None:
        if isinstance(self.job.policy.model, RemoteModel):
            metrics = metrics | self.job.policy.model.session.meter.take_row()
        timings = self.watch.take() | {"timing_s/checkpoint": self._checkpoint_s}
        self.job.tracker.log(step, metrics | timings | memory_used() | {"time": time.time()})
        self._checkpoint_s = 0.0

    def _sync(self) -> None:
        with self.watch.timed("sync"):
            hand_over(self.train_state, self.job.engine, self.config.policy.lora)
            engines = replicas_of(self.job.engine)
            for nth, engine in enumerate(engines, start=1):
                name = engine_name(nth, len(engines))
                check_sync(engine, self.job.policy, self._probe, score=self._score, name=name)

    def _score(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the logprobs of sampled tokens by the weights that are trained."""
        what, state = "a check of the engine", self.train_state
        return state.group.everywhere(what, actor_logprobs, state, ids, mask, temperature=1.0)

    def _make_probe(self) -> list[int]:
        return probe_prompt(self.job.policy, self.job.manifest.heldout[0], self.job.make_env())

    def _count_time(self) -> None:
        total_s = self._earlier_s + time.monotonic() - self._began
        self.progress = replace(self.progress, total_s=total_s)
