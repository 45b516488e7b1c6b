"""The trials of one launch on Ray Tune. It and `nodes` alone import Ray; import it late.

Tune schedules and nothing else: what is left to run, what came out and how a trial is resumed
are in our own files. A fresh Tuner a launch, one explicit list of trials, no retries, no restore.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.progress_reporter import TrialProgressCallback

from rltune.errors import Problem, ResourceError
from rltune.runner.environment import not_started, require_resources
from rltune.runner.fork_server import run_forked
from rltune.runner.machine import usable_cores
from rltune.runner.nodes import is_gone, living_nodes, read_token_again, this_node
from rltune.runner.orphan_cleanup import OrphanCleanup
from rltune.runner.process import THREAD_VARIABLES
from rltune.runner.trial import TrialPayload, run_trial
from rltune.runner.waiting import Waiting
from rltune.runner.watch import Watch, WorkerFailure
from rltune.spec.schema.run import reserved_cpus, reserved_gpus
from rltune.store.files import write_text_atomic


class TuneLaunch:
    """One launch: Ray and Tune in a thread of their own, so that signals stay with the caller.

    Args:
        name: Name of the launch; names its folder.
        folder: Absolute folder for Tune's state.
        payloads: The trials, in the order to start them.
        max_concurrent: Most trials at a time; None: as many as the resources hold.
        address: A running cluster; None starts a private one on this machine.
        ray_folder: Folder with a short path for the files of a private cluster.
        fork_server: Socket of the fork server that starts the trials; None: each worker of Ray is
            the process of one trial.

    """

    def __init__(
        self,
        name: str,
        folder: Path,
        payloads: Sequence[TrialPayload],
        *,
        max_concurrent: int | None,
        address: str | None,
        ray_folder: Path | None = None,
        fork_server: Path | None = None,
    ) -> None:
        self._name = name
        self._folder = folder
        self._payloads = tuple(payloads)
        self._max_concurrent = max_concurrent
        self._address = address
        self._ray_folder = ray_folder
        self._fork_server = fork_server
        self._watch = Watch()
        self._error: BaseException | None = None
        self._owns_ray = False
        self._cleanup: OrphanCleanup | None = None
        self._thread = threading.Thread(target=self._run, name=f"tune-{name}", daemon=True)

    def start(self) -> None:
        """Begin; returns at once.

        Raises:
            ResourceError: Ray already runs in this process. What somebody else started cannot be
                ended with the launch, so a second Ctrl-C would leave the trials alive.

        """
        if ray.is_initialized():
            what = "Ray already runs in this process."
            action = "Call ray.shutdown() first, or give --ray-address of a running cluster."
            raise ResourceError(Problem("ray.init", what, action=action))
        self._thread.start()

    def is_running(self, *, wait_s: float) -> bool:
        """Wait at most so long for the end; tell whether it is still to come."""
        self._thread.join(wait_s)
        return self._thread.is_alive()

    def stop(self) -> None:
        """Start nothing any more, and end once the running trials have.

        The caller has made the trials' stop file before. Safe in a signal handler.
        """
        self._watch.drain_only(self._watch.running.copy())

    def failures(self) -> tuple[WorkerFailure, ...]:
        """Return the workers that died since the last call."""
        failures = []
        while self._watch.failures:
            failures.append(self._watch.failures.popleft())
        return tuple(failures)

    @property
    def unschedulable(self) -> frozenset[str]:
        """Trials that were not started, since no machine was left that could hold them."""
        return self._watch.unschedulable

    def abort(self) -> None:
        """End now: the trials' processes are killed."""
        if self._owns_ray:
            ray.shutdown()
            self._dismiss()

    def raise_error(self) -> None:
        """Raise what ended the launch, if something did."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._connect()
            try:
                self._fit()
            finally:
                if self._owns_ray:
                    ray.shutdown()
        except BaseException as error:
            self._error = error
        finally:
            self._dismiss()

    def _dismiss(self) -> None:
        if self._cleanup is not None:
            self._cleanup.dismiss()

    def _connect(self) -> None:
        options: dict[str, Any] = {
            "address": self._address or "local",
            "logging_level": logging.ERROR,
            "log_to_driver": False,
            "runtime_env": {"env_vars": thread_variables(self._payloads)},
        }
        if self._ray_folder is not None:
            options["include_dashboard"] = False
            options["num_cpus"] = usable_cores()
            options["_temp_dir"] = folder = str(self._ray_folder)
            # Ray kills a worker before it can tidy up: its temporary files go with the cluster's.
            options["runtime_env"]["env_vars"]["TMPDIR"] = folder
            self._cleanup = OrphanCleanup(folder)
        read_token_again()
        try:
            ray.init(**options)
        except Exception as error:  # a start that takes too long is a bare Exception
            raise not_started(error, self._address) from error
        self._owns_ray = True
        # Each failure is told by the trial's own marker; Tune would print it a second time.
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
        # Ray prints a dead worker to stdout whatever its options say. It would break --json, and
        # the same text is in the trial's FAILED marker.
        ray._private.worker._worker_logs_enabled = False

    def _fit(self) -> None:
        needs = {payload.spec.trial_id: trial_needs(payload) for payload in self._payloads}
        require_resources(tuple(needs.values()), living_nodes())
        self._watch.waiting = Waiting(needs, living_nodes)
        by_id = {payload.spec.trial_id: payload for payload in self._payloads}

        def placement(config: Mapping[str, Any]) -> tune.PlacementGroupFactory:
            return tune.PlacementGroupFactory([needs[config["trial"]]])

        trainable = tune.with_parameters(_trainable, payloads=by_id, fork_server=self._fork_server)
        tune.Tuner(
            tune.with_resources(trainable, placement),
            # Ids, not payloads: Tune hides objects in a grid from the functions that name trials.
            param_space={"trial": tune.grid_search(list(by_id))},
            tune_config=tune.TuneConfig(
                max_concurrent_trials=self._max_concurrent,
                # A worker that runs trials itself runs one: the next would find what it left.
                reuse_actors=self._fork_server is not None,
                trial_dirname_creator=_trial_name,
                trial_name_creator=_trial_name,
            ),
            run_config=tune.RunConfig(
                name=self._name,
                storage_path=str(self._folder),
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=0),
                callbacks=[_Listener(self._watch, by_id), _Silent()],
                stop=_Drained(self._watch),
            ),
        ).fit()


def trial_needs(payload: TrialPayload) -> dict[str, float]:
    """Return what a trial reserves, in Ray's words."""
    config = payload.spec.config
    gpus = reserved_gpus(config)
    return {"CPU": reserved_cpus(config)} | ({"GPU": gpus} if gpus else {})


def thread_variables(payloads: Sequence[TrialPayload]) -> dict[str, str]:
    """Return the thread limits of the workers' environment; none when the trials disagree.

    A trial sets them itself before torch is imported; the environment also reaches what a
    worker imports before the trial begins.
    """
    threads = {int(payload.spec.config["resources"]["threads"]) for payload in payloads}
    if len(threads) != 1:
        return {}
    return dict.fromkeys(THREAD_VARIABLES, str(threads.pop()))


class _Listener(tune.Callback):  # type: ignore[misc]
    """Notes which trials run and which died. How they ended is in their own files."""

    def __init__(self, watch: Watch, payloads: Mapping[str, TrialPayload]) -> None:
        self._watch = watch
        self._payloads = payloads

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        self._watch.running.add(_trial_name(trial))
        if self._watch.waiting is not None:
            self._watch.waiting.start(_trial_name(trial))

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        self._watch.running.discard(_trial_name(trial))

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        name = _trial_name(trial)
        if self._watch.waiting is not None:  # one that died before it started waits no more
            self._watch.waiting.start(name)
        node = _read_node(self._payloads[name])
        gone = is_gone(node)
        reason = f"its machine is gone ({node})" if gone else _failure_reason(trial)
        self._watch.failures.append(WorkerFailure(name, reason, gone))
        self._watch.running.discard(name)


class _Silent(TrialProgressCallback):  # type: ignore[misc]
    """Takes the place of Tune's own, which prints a line a trial although verbose is 0."""

    def _print(self, msg: str) -> None:
        pass


class _Drained(tune.Stopper):  # type: ignore[misc]
    """Ends the launch once a stop was asked for and the trials that ran have ended.

    It also ends one that waits for machines that are gone.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._watch.is_drained or self._watch.is_unschedulable


def _trainable(
    config: Mapping[str, Any],
    payloads: Mapping[str, TrialPayload],
    fork_server: Path | None,
) -> None:
    payload = replace(payloads[config["trial"]], node=this_node())
    _write_node(payload)
    if fork_server is None:
        run_trial(payload)
    else:
        run_forked(partial(run_trial, payload), fork_server)


def _write_node(payload: TrialPayload) -> None:
    """Note which machine makes this attempt, before anything that takes time."""
    path = _node_file(payload)
    path.parent.mkdir(exist_ok=True)
    write_text_atomic(path, payload.node)


def _read_node(payload: TrialPayload) -> str:
    path = _node_file(payload)
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _node_file(payload: TrialPayload) -> Path:
    return payload.stop_file.parent / "nodes" / payload.spec.trial_id


def _trial_name(trial: Trial) -> str:
    return str(trial.config["trial"])


def _failure_reason(trial: Trial) -> str:
    """Return one line about a process that died: what Ray wrote about it, without its ids."""
    try:
        text = Path(trial.error_file).read_text(encoding="utf-8", errors="replace")
    except (OSError, TypeError):  # the reason is a help; the failure itself must be recorded
        text = ""
    return failure_text(text)


def failure_text(report: str) -> str:
    """Return what Ray's report of a dead process says, without ids and advice on Ray itself."""
    told = report.partition("Worker exit type:")[2] or report.rpartition("TaskError: ")[2]
    text = " ".join(told.split() or report.split()[-80:])
    text, guesses, _ = text.replace(" Worker exit detail:", ":").partition(" Some common causes")
    if guesses:
        text += " It was killed, ran out of memory (see `dmesg`) or crashed"
    return f"its process died: {text[:700].rstrip('.') or 'Ray gave no reason'}"
