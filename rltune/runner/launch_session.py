"""One launch under way: Tune in its thread, the recorder and the signals here."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rltune.errors import Problem, ResourceError
from rltune.rollout.shared.host import SHARED, EngineHosts, engine_key
from rltune.runner.environment import apply_ray_environment, make_ray_folder
from rltune.runner.fork_server import ForkServer, threads_to_fork
from rltune.runner.interrupts import stop_on_signal
from rltune.runner.machine import usable_cores
from rltune.runner.orphan_cleanup import MARK
from rltune.runner.recorder import Recorder
from rltune.runner.trial import TrialPayload
from rltune.spec.schema.run import reserved_cpus
from rltune.store.provenance import read_provenance
from rltune.store.rundir import trial_status
from rltune.types import TrialSpec, TrialStatus
from rltune_envs.guard import SLOW_S

if TYPE_CHECKING:
    from rltune.runner.tune import TuneLaunch

OnTick = Callable[[], None]

STOPPING = (
    "stopping: each running trial finishes its step and writes a checkpoint; custom code that has "
    f"not returned for {SLOW_S:g} s is abandoned. A second signal stops everything at once; the "
    "steps after the last checkpoints are then repeated"
)
"""Printed at the first signal."""


class LaunchSession:
    """One launch, from its payloads to what it left. Ray is imported when it runs.

    Args:
        recorder: Records how its attempts end.
        payloads: The attempts to make, in the order to start them.
        specs: The trials to record: those, and what earlier launches of the command left.
        max_concurrent: Most trials at a time; None: as many as the resources hold.
        address: A running cluster; None starts a private one on this machine.
        say: Gets one line once a stop is asked for.

    """

    def __init__(
        self,
        recorder: Recorder,
        payloads: Sequence[TrialPayload],
        specs: Sequence[TrialSpec],
        *,
        max_concurrent: int | None,
        address: str | None,
        say: Callable[[str], None],
    ) -> None:
        self._recorder = recorder
        self._say = say
        self._was_told = False
        self._payloads = {payload.spec.trial_id: payload for payload in payloads}
        self._specs = tuple(specs)
        self._max_concurrent = max_concurrent
        self._address = address
        self._stop_file = payloads[0].stop_file
        self._launch: TuneLaunch | None = None
        self._engines: EngineHosts | None = None
        self._preempted: set[str] = set()  # trials whose machine went

    def run(self, on_tick: OnTick, *, tick_s: float) -> bool:
        """Drive the launch to its end; return whether a stop was asked for."""
        self._stop_file.parent.mkdir(parents=True)
        with stop_on_signal(self._stop), ExitStack() as stack:
            apply_ray_environment(self._address)
            self._launch = self._make_launch(stack)
            if self._is_stopping:
                return True
            self._launch.start()
            try:
                while self._launch.is_running(wait_s=tick_s):
                    self._keep_engines()
                    self._tell_stop()
                    self._reconcile()
                    on_tick()
            except BaseException:
                self._launch.abort()
                raise
            self._reconcile()
            self._fail_unreported()
            on_tick()
        try:
            self._launch.raise_error()
        except BaseException:
            self._recorder.close(self._specs)
            raise
        return self._is_stopping

    def _make_launch(self, stack: ExitStack) -> "TuneLaunch":
        """Return the launch; its fork server imports torch while this process imports Ray."""
        payloads = list(self._payloads.values())
        require_one_machine([payload.spec for payload in payloads], self._address)
        folder, server = None, None
        if self._address is None:
            folder = make_ray_folder(self._stop_file.parent)
            payloads = self._place_engines(payloads, folder, stack)
        threads = threads_to_fork(payloads, self._address)
        if folder is not None and threads is not None:
            server = stack.enter_context(ForkServer(folder, threads))
        from rltune.runner.tune import TuneLaunch

        return TuneLaunch(
            self._recorder.launch,
            self._recorder.run.tune,
            payloads,
            max_concurrent=self._max_concurrent,
            address=self._address,
            ray_folder=folder,
            fork_server=None if server is None else server.address,
        )

    def _place_engines(
        self, payloads: Sequence[TrialPayload], folder: Path, stack: ExitStack
    ) -> list[TrialPayload]:
        """Return the payloads, those of trials that share an engine with its place."""
        configs = {payload.spec.trial_id: payload.spec.config for payload in payloads}
        cores = min((reserved_cpus(config) for config in configs.values()), default=1.0)
        most = self._max_concurrent or max(1, int(usable_cores() / cores))
        hosts = EngineHosts(configs, folder, most=most, variables={MARK: str(folder)})
        self._engines = stack.enter_context(hosts)
        return [replace(one, engine=hosts.place(one.spec.trial_id)) for one in payloads]

    def _keep_engines(self) -> None:
        if self._engines is not None:
            self._engines.keep()

    @property
    def begun(self) -> frozenset[str]:
        """Trials whose attempt left a trace."""
        return frozenset(name for name in self._payloads if self._has_begun(name))

    @property
    def unschedulable(self) -> list[TrialSpec]:
        """Trials that were not started, since no machine was left that could hold them."""
        names = self._launch.unschedulable if self._launch is not None else frozenset()
        return [payload.spec for name, payload in self._payloads.items() if name in names]

    @property
    def preempted(self) -> list[TrialSpec]:
        """Trials that ended because their machine went, and not by themselves before it did.

        A private cluster has one machine: when Ray gives that up, something else is wrong.
        """
        if self._address is None:
            return []
        return [
            payload.spec
            for name, payload in self._payloads.items()
            if name in self._preempted
            and trial_status(self._recorder.run.trial(name)) is TrialStatus.INTERRUPTED
        ]

    def _has_begun(self, trial_id: str) -> bool:
        trial, attempt = self._recorder.run.trial(trial_id), self._payloads[trial_id].attempt
        failure = trial.read_failed()
        seen = read_provenance(trial).get("attempt")
        return seen == attempt or (failure is not None and failure.attempt == attempt)

    @property
    def _is_stopping(self) -> bool:
        return self._stop_file.exists()

    def _stop(self) -> None:
        """Ask for a clean stop. The file comes first: what starts after `stop` must find it."""
        self._stop_file.touch()
        if self._launch is not None:
            self._launch.stop()

    def _tell_stop(self) -> None:
        """Say once what a stop waits for. Not in the signal's handler: that may not print."""
        if self._is_stopping and not self._was_told:
            self._was_told = True
            self._say(STOPPING)

    def _reconcile(self) -> None:
        assert self._launch is not None
        for failure in self._launch.failures():
            self._mark_failed(
                failure.trial_id, failure.reason, is_machine_gone=failure.is_machine_gone
            )
            if failure.is_machine_gone:
                self._preempted.add(failure.trial_id)
                payload = self._payloads[failure.trial_id]
                self._recorder.expect([(payload.spec, payload.attempt + 1)])
        self._recorder.reconcile(self._specs)

    def _mark_failed(self, trial_id: str, reason: str, *, is_machine_gone: bool = False) -> None:
        payload = self._payloads[trial_id]
        self._recorder.mark_failed(
            payload.spec,
            attempt=payload.attempt,
            reason=reason,
            is_preempted=self._is_stopping or is_machine_gone,
        )

    def _fail_unreported(self) -> None:
        """End the attempts of which neither they nor Ray told the end."""
        for trial_id, payload in self._payloads.items():
            trial = self._recorder.run.trial(trial_id)
            if read_provenance(trial).get("attempt") == payload.attempt:
                self._mark_failed(trial_id, "its process ended with the launch, without a marker")
        self._recorder.reconcile(self._specs)


def require_one_machine(specs: Sequence[TrialSpec], address: str | None) -> None:
    """Refuse an engine that trials share where they may be on several machines.

    Args:
        specs: The trials.
        address: A running cluster; None for a private one on this machine.

    Raises:
        ResourceError: Some share an engine, and there is a cluster.

    """
    if address is not None and any(engine_key(spec.config) for spec in specs):
        what = f"'{SHARED}' is one process of this machine, and --ray-address may have others."
        action = "Set it to own, or run without --ray-address."
        raise ResourceError(Problem("resources.engine", what, action=action))
