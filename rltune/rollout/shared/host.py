"""The driver's side of engines that trials share: it starts and ends them. Imports no torch.

The driver listens, and the engine's process takes over as soon as a trial has called. So an engine
that ended is started again for whoever calls next, and none is started for nobody.
"""

import os
import select
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rltune.interpreter import module_command
from rltune.rollout.engine_environment import engine_environment, link_kernels
from rltune.spec.identity import canonical_json

SERVER = "rltune.rollout.shared.server"
SOCKET, ERRORS = "socket", "stderr"
SHARED = "shared_by_sweep"
"""Value of `resources.engine`."""

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EnginePlace:
    """Where a trial finds the engine that it shares."""

    address: Path  # its socket
    seats: int  # most trials at a time


def engine_key(config: Config) -> str:
    """Return what trials agree on that can share an engine; empty for one that does not share."""
    resources, rollout, env = config["resources"], config["rollout"], config["env"]
    if resources["engine"] != SHARED:
        return ""
    return canonical_json(
        {
            "policy": config["policy"],
            "env": [env["kind"], env["prompt"]],  # they choose the model `tiny` and its texts
            "rollout": {key: rollout[key] for key in ("engine", "max_context", "vllm")},
            "threads": resources["threads"],
            "gpus": resources["gpus"] > 0,
        }
    )


class EngineHost:
    """One engine of a launch.

    Args:
        folder: Private, with a short path; made here and removed at the end.
        gpu: What the process is to see as `CUDA_VISIBLE_DEVICES`; empty for none.
        threads: Of torch there.
        variables: More for its environment.

    """

    def __init__(
        self, folder: Path, *, gpu: str, threads: int, variables: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self._gpu, self._threads, self._variables = gpu, threads, dict(variables)
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir()
        link_kernels(folder)
        self.address = folder / SOCKET
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.address))
        self._listener.listen(socket.SOMAXCONN)

    def __enter__(self) -> Self:
        """Return this host."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the engine; trials that still call see it."""
        self._listener.close()
        self._end()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pid(self) -> int | None:
        """Id of the engine's process, while there is one."""
        return None if self._process is None else self._process.pid

    def keep(self) -> None:
        """Start the engine if a trial has called and none is there to answer. Ask often."""
        is_alive = self._process is not None and self._process.poll() is None
        if not is_alive and select.select([self._listener], [], [], 0)[0]:
            self._end()
            self._start()

    def _start(self) -> None:
        environment = engine_environment(self._folder, gpu=self._gpu, threads=self._threads)
        with (self._folder / ERRORS).open("wb") as errors:
            self._process = subprocess.Popen(
                module_command(SERVER, str(self._listener.fileno()), str(self._folder)),
                pass_fds=[self._listener.fileno()],
                stdin=subprocess.PIPE,  # its leash: it ends with this process
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=environment | self._variables,
                start_new_session=True,  # Ctrl-C is for the driver, which asks trials to stop
            )

    def _end(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process = None


class EngineHosts:
    """The engines of a launch: one for each group of trials that can share it.

    Args:
        configs: Resolved config of each trial, by its id.
        folder: Private, with a short path.
        most: Trials at a time.
        variables: More for the engines' environment.

    """

    def __init__(
        self,
        configs: Mapping[str, Config],
        folder: Path,
        *,
        most: int,
        variables: Mapping[str, str],
    ) -> None:
        self._stack = ExitStack()
        self._hosts: list[EngineHost] = []
        self._places: dict[str, EnginePlace] = {}
        for number, trials in enumerate(_groups(configs)):
            resources = configs[trials[0]]["resources"]
            host = EngineHost(
                folder / f"engine-{number}",
                gpu=first_gpu() if resources["gpus"] else "",
                threads=int(resources["threads"]),
                variables=variables,
            )
            self._hosts.append(self._stack.enter_context(host))
            place = EnginePlace(host.address, min(len(trials), most))
            self._places |= dict.fromkeys(trials, place)

    def __enter__(self) -> Self:
        """Return these."""
        return self

    def __exit__(self, *raised: object) -> None:
        """End all."""
        self._stack.close()

    def place(self, trial_id: str) -> EnginePlace | None:
        """Return where a trial finds its engine; None for one that shares none."""
        return self._places.get(trial_id)

    def keep(self) -> None:
        """Start each that is called and is not there. Ask often."""
        for host in self._hosts:
            host.keep()


def _groups(configs: Mapping[str, Config]) -> Sequence[list[str]]:
    """Return the trials that share, one list for each engine."""
    groups: dict[str, list[str]] = {}
    for trial_id, config in configs.items():
        if key := engine_key(config):
            groups.setdefault(key, []).append(trial_id)
    return list(groups.values())


def first_gpu() -> str:
    """Return the first GPU that this process may use, as `CUDA_VISIBLE_DEVICES` names it."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
