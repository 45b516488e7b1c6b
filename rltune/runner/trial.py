"""One trial in one process, from its spec to a DONE or FAILED marker. No Ray inside.

Torch is imported late: its thread pools read the environment when they are first loaded.
"""

import logging
import traceback
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

import rltune
from rltune.errors import InputError, InterruptedRun
from rltune.rollout.shared.host import EnginePlace
from rltune.runner.budget import Deadline, decline, write_declined
from rltune.runner.logfile import logging_to
from rltune.runner.process import device_of, set_environment, set_threads
from rltune.runner.provenance import DriverProvenance, earlier_attempts, trial_provenance
from rltune.runner.slow_calls import SlowCalls, last_words
from rltune.runner.spend import SpendLimit, overspent
from rltune.spec.schema.sweep import Metric
from rltune.spec.schema.trial import TrialConfig
from rltune.spec.trial_reference import looking_in
from rltune.store.failure import TrialFailure, failure_kind
from rltune.store.files import dumps, read_json, write_json_atomic, write_text_atomic
from rltune.store.inputs import changed_since, recorded_inputs, within
from rltune.store.jsonl import append_jsonl, read_jsonl
from rltune.store.lock import file_lock
from rltune.store.provenance import read_provenance
from rltune.store.rundir import RunDir, TrialDir, trial_status
from rltune.store.secret import masked
from rltune.track.base import Tracker
from rltune.track.make import make_trackers
from rltune.trainer.inputs import inputs_of, packages_of
from rltune.trainer.tasks import env_maker, require_same_rows
from rltune.types import TrialSpec, TrialStatus
from rltune_envs.errors import CustomCodeError
from rltune_envs.faults import retry
from rltune_envs.guard import supervised
from rltune_envs.splits import Manifest

if TYPE_CHECKING:
    from rltune.policy.load import Policy
    from rltune.trainer.job import Job

LOCK_S = 120.0  # a killed driver's worker dies within seconds; its successor waits for that


@dataclass(frozen=True, slots=True)
class TrialPayload:
    """Everything that a process needs to run one attempt of a trial. Picklable; absolute paths."""

    spec: TrialSpec  # the trial
    folder: Path  # its folder
    manifest: Path  # the file of its frozen tasks
    metric: Metric  # the held-out metric that chooses the checkpoint
    attempt: int  # which attempt this is, from 1
    driver: DriverProvenance  # the driver's part of the provenance
    stop_file: Path  # once it exists, the trial checkpoints and ends, or does not start
    base: Path  # folder to which relative paths and import paths in the config refer: the driver's
    # when the launch should be over; a trial that cannot finish by then does not start
    deadline: Deadline | None = None
    # training step after which the attempt ends as if it was asked to; None runs on
    stop_after: int | None = None
    spend: SpendLimit | None = None  # what the sweep may ask of a service; None: no limit
    engine: EnginePlace | None = None  # of trials that share one; None: each makes its own
    node: str = ""  # machine of a cluster that runs it; empty outside Ray


def run_trial(payload: TrialPayload) -> TrialStatus:
    """Run an attempt to its end and return the status that its marker says.

    A finished trial is left alone, and nothing starts once the stop file exists, when it cannot
    finish by the deadline, or when the budget is spent. Whatever the attempt raises becomes its
    FAILED marker; only a marker that cannot be written raises.
    """
    trial = TrialDir(payload.folder).create()
    with file_lock(trial.lock, timeout_s=LOCK_S):
        if trial.read_done() is not None or payload.stop_file.exists():
            return trial_status(trial)
        run = RunDir(payload.folder.parents[1])
        if overspent(run, payload.spend):
            return trial_status(trial)
        if declined := decline(run, payload.spec, payload.deadline):
            write_declined(payload.stop_file.parent, declined)
            return trial_status(trial)
        trial.clear_failed()
        level = str(payload.spec.config["tracking"]["log_level"])
        with logging_to(trial.log, level=level) as log:
            slow = SlowCalls(log.warning, payload.stop_file.exists)
            try:
                with (
                    supervised(slow, last_words()),
                    looking_in(payload.folder),
                    within(payload.base),
                    _job(payload, trial, log) as job,
                ):
                    from rltune.trainer.loop import train  # torch: the job has set its threads

                    train(job)
            except BaseException as error:  # an interrupt or an exit ends the attempt, too
                failure = describe_failure(error, step=steps_done(trial), attempt=payload.attempt)
                is_stop = isinstance(error, InterruptedRun)
                severity = logging.INFO if is_stop else logging.ERROR
                log.log(severity, "%s\n%s", failure.reason, failure.traceback)
                trial.write_failed(failure)
        return trial_status(trial)


def describe_failure(error: BaseException, *, step: int | None, attempt: int) -> TrialFailure:
    """Return the FAILED marker of an attempt: kind, one line with the place, traceback, step."""
    if isinstance(error, InterruptedRun):
        return TrialFailure(failure_kind(error, step=step), str(error), "", step, attempt)
    text = " ".join(str(error).split()) or "no message"
    if isinstance(error, CustomCodeError):  # it names its own line
        text += ". Repair it; the same command goes on"
    elif not isinstance(error, InputError):  # a refusal names what it refuses
        text = f"{type(error).__name__}: {text}{_place(error)}"
    trace = masked("".join(traceback.format_exception(error)))
    return TrialFailure(failure_kind(error, step=step), masked(text), trace, step, attempt)


def _place(error: BaseException) -> str:
    """Return the deepest line of rltune that an exception passed, else its deepest line."""
    frames = traceback.extract_tb(error.__traceback__)
    root = str(Path(rltune.__file__).parent)
    ours = [frame for frame in frames if frame.filename.startswith(root)] or frames
    if not ours:
        return ""
    path = Path(ours[-1].filename)
    name = path.relative_to(Path(root).parent) if path.is_relative_to(root) else path.name
    return f" ({name}:{ours[-1].lineno})"


def steps_done(trial: TrialDir) -> int | None:
    """Return the last step with metrics; None if there are none, or they cannot be read."""
    try:
        steps = [row["step"] for row in read_jsonl(trial.metrics).rows if "step" in row]
    except OSError:
        return None
    return max(steps, default=None)


@contextmanager
def _job(payload: TrialPayload, trial: TrialDir, log: logging.Logger) -> Iterator["Job"]:
    """Set the process up, and yield everything that training needs."""
    config = TrialConfig.model_validate_json(dumps(payload.spec.config))
    set_environment(config)
    text = yaml.safe_dump(dict(payload.spec.config), sort_keys=False, allow_unicode=True)
    write_text_atomic(trial.config, text)
    trial.write_spec(payload.spec)
    manifest = Manifest.from_json(read_json(payload.manifest))
    device = device_of(config)
    record = _provenance(payload, trial, config, device, manifest.sha256)
    if record["source_sha256"] != payload.driver.code.source_sha256:
        log.warning("this process runs other rltune sources than its driver; the audit says so")
    set_threads(config.resources.threads)
    # These import torch: now that its threads are set.
    from rltune.remote.session import identity
    from rltune.trainer.preflight.learnable import require_learnable
    from rltune.trainer.prompt import prompt_of
    from rltune.trainer.start import policy_at_start, remote_base

    policy = policy_at_start(trial, config, payload.base, device=device)
    make_env = env_maker(config.env, config.reward, payload.base)
    require_same_rows(make_env, manifest)
    prompt = retry(lambda: prompt_of(policy, manifest.heldout[0], make_env()))
    write_text_atomic(trial.prompt, prompt.text)
    if config.trainer.backend == "tinker":
        record["remote"] = identity(remote_base(config), config.policy.lora.rank)
    record["weights_sha256"] = policy.weights_sha256
    record["tokenizer_sha256"] = policy.tokenizer_sha256
    record["prompt_sha256"] = prompt.sha256
    write_json_atomic(trial.provenance, record)
    require_learnable(policy, config.rollout, manifest, retry(make_env), warn=log.warning)
    try:
        with _running(payload, trial, config, manifest, policy, log) as job:
            yield job
    finally:
        _record_edits(trial, record, payload.base, log)


def _provenance(
    payload: TrialPayload, trial: TrialDir, config: TrialConfig, device: str, tasks_sha256: str
) -> dict[str, Any]:
    """Write and return provenance.json, as far as it is known before the weights are loaded."""
    origin = trial_provenance(
        payload.driver,
        config,
        attempt=payload.attempt,
        node=payload.node,
        device=device,
        manifest_sha256=tasks_sha256,
        base=payload.base,
        inputs=inputs_of(config, payload.base),
        packages=packages_of(config, payload.base),
    )
    record = {**origin, "earlier": earlier_attempts(read_provenance(trial))}
    write_json_atomic(trial.provenance, record)
    return record


def _record_edits(
    trial: TrialDir, record: Mapping[str, Any], base: Path, log: logging.Logger
) -> None:
    """Record which files changed while the trial ran: nobody knows which content it read."""
    if names := changed_since(recorded_inputs(record), base):
        log.warning("changed while the trial ran: %s; the audit says so", ", ".join(names))
        write_json_atomic(trial.provenance, {**record, "inputs_changed": list(names)})


@contextmanager
def _running(
    payload: TrialPayload,
    trial: TrialDir,
    config: TrialConfig,
    manifest: Manifest,
    policy: "Policy",
    log: logging.Logger,
) -> Iterator["Job"]:
    """Yield the job with its engine and tracker open; both are closed however it ends."""
    from rltune.trainer.engines import make_engine
    from rltune.trainer.job import Job
    from rltune.trainer.ranks.launch import ranks_for
    from rltune.trainer.records.artifacts import start_artifact, tasks_artifact

    with (
        closing(make_engine(config, policy, payload.engine)) as engine,  # it may refuse
        _tracking(payload, trial, config, log) as tracker,
    ):
        if tracker.shows_media:
            tracker.use(tasks_artifact(manifest, payload.manifest))
            tracker.use(start_artifact(trial, policy, model=config.policy.model))
        with ranks_for(config, trial=trial.path, base=payload.base) as group:
            yield Job(
                config=config,
                config_hash=payload.spec.config_hash,
                trial=trial,
                manifest=manifest,
                make_env=env_maker(config.env, config.reward, payload.base),
                policy=policy,
                engine=engine,
                tracker=tracker,
                metric=payload.metric,
                should_stop=partial(_should_stop, payload, trial),
                warn=log.warning,
                say=log.info,
                overspent=partial(overspent, RunDir(payload.folder.parents[1]), payload.spend),
                group=group,
            )


@contextmanager
def _tracking(
    payload: TrialPayload, trial: TrialDir, config: TrialConfig, log: logging.Logger
) -> Iterator[Tracker]:
    """Yield the trackers of a trial; they are closed with how it ended."""
    tracker = make_trackers(
        payload.spec,
        trial.path,
        append=partial(append_jsonl, trial.metrics),
        wandb=config.tracking.wandb,
        project=config.tracking.project,
        warn=log.warning,
    )
    status = TrialStatus.FAILED
    try:
        yield tracker
        status = trial_status(trial)
    except InterruptedRun:
        status = TrialStatus.INTERRUPTED
        raise
    finally:
        tracker.close(status)


def _should_stop(payload: TrialPayload, trial: TrialDir) -> bool:
    if payload.stop_after is not None and (steps_done(trial) or 0) >= payload.stop_after:
        return True
    return payload.stop_file.exists()
