"""Ray's environment variables and folders, and the resources of trials. Imports no Ray."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from rltune.errors import Problem, ResourceError
from rltune.runner.cluster_auth import MODE, choose_auth_mode
from rltune.runner.machine import RAY_PREFIX, socket_folder, usable_cores
from rltune.store.files import write_text_atomic

RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent anywhere
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",  # it prints a crash report on SIGTERM
    "RAY_ENABLE_AUTO_CONNECT": "0",  # after an abort, Tune's thread would start a second cluster
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # it prints the traceback of a trial that an abort kills
    # Ray starts a worker for each core and waits for them, and Tune's trials cannot use them.
    "RAY_prestart_worker_first_driver": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # our paths are absolute; relative ones keep their meaning
    "RAY_AIR_NEW_OUTPUT": "0",  # the new output engine prints although verbose is 0
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # silences its own FutureWarning
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # metrics.jsonl is the record
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Tune would end trials without a checkpoint
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}
RAY_FOLDER = "ray-folder"
"""File in a launch's folder: where its private cluster keeps sockets and logs."""
OF_ANOTHER = (
    "RAY_ADDRESS",
    "RAY_API_SERVER_ADDRESS",
    "RAY_CLIENT_MODE",
    "RAY_JOB_CONFIG_JSON_ENV_VAR",
    "RAY_JOB_ID",
    "RAY_JOB_SUBMIT_HOOK",
    "RAY_NAMESPACE",
    "RAY_OVERRIDE_JOB_RUNTIME_ENV",
    "RAY_OVERRIDE_LABELS",
    "RAY_OVERRIDE_RESOURCES",
    "RAY_RAYLET_PID",
    "RAY_REDIS_ADDRESS",
    "RAY_REDIS_PASSWORD",
    "RAY_RUNTIME_ENV",
    "RAY_RUNTIME_ENV_HOOK",
    "RAY_START_HOOK",
    "RAY_STORAGE",
)
"""Variables that tie a process to a cluster or a job: a private cluster is another one."""
UV = "RAY_ENABLE_UV_RUN_RUNTIME_ENV"
"""Under `uv run` Ray would copy the working folder, runs and all, and start trials in the copy."""
REFUSED = ("TUNE_RESULT_DIR", "RAY_AIR_LOCAL_CACHE_DIR")  # Ray raises on them, late and unclearly


def apply_ray_environment(address: str | None) -> None:
    """Set Ray's variables for this process and those that it starts. Call before importing Ray.

    Args:
        address: A running cluster; None for a private one on this machine.

    Raises:
        ResourceError: A variable is set that this version of Ray refuses, or the cluster cannot
            be used.

    """
    require_startable(address)
    os.environ.update(RAY_ENVIRONMENT)
    os.environ.pop("RAY_TUNE_CALLBACKS", None)  # they would report our trials to other trackers
    if address is not None:
        choose_auth_mode(address)
        return
    for name in OF_ANOTHER:
        os.environ.pop(name, None)
    os.environ[UV] = "0"
    _set_token()


def require_startable(address: str | None) -> None:
    """Refuse an environment in which Ray cannot start; nothing is changed.

    Args:
        address: A running cluster; None for a private one on this machine.

    Raises:
        ResourceError: A variable is set that this version of Ray refuses, or no folder has a name
            that is short enough for sockets.

    """
    refused = [name for name in REFUSED if name in os.environ]
    if refused:
        raise ResourceError(
            [
                Problem(f"environment: {name}", "Ray does not accept it.", action="Unset it.")
                for name in refused
            ]
        )
    if address is None:
        socket_folder()


def _set_token() -> None:
    """Give a private cluster a password that only this process and its children know.

    Ray listens on every interface of the machine, and whoever reaches its port runs code. The
    token is handed on in the environment; without one there, Ray would write a file to the home.
    """
    if MODE in os.environ:
        return
    os.environ[MODE] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def make_ray_folder(launch: Path) -> Path:
    """Make a short-named folder for the files of a private cluster, and note it in the launch's.

    Not below the run folder, whose path may be too long for a socket.

    Raises:
        ResourceError: No folder has a short enough path.

    """
    folder = Path(tempfile.mkdtemp(prefix=RAY_PREFIX, dir=socket_folder()))
    launch.mkdir(parents=True, exist_ok=True)
    write_text_atomic(launch / RAY_FOLDER, f"{folder}\n")
    return folder


def remove_ray_folders(tune: Path) -> None:
    """Remove what the private clusters of ended launches left. Call while no launch lives."""
    for note in sorted(tune.glob(f"*/{RAY_FOLDER}")):
        folder = Path(note.read_text(encoding="utf-8", errors="replace").strip())
        if folder.name.startswith(RAY_PREFIX):  # whatever else the note says is not ours to delete
            shutil.rmtree(folder, ignore_errors=True)
        note.unlink()


def not_started(error: Exception, address: str | None) -> ResourceError:
    """Return that a cluster cannot be reached, or that a private one did not start, and what to do.

    Args:
        error: What `ray.init` raised.
        address: The cluster; None for a private one on this machine.

    """
    lines = str(error).strip().splitlines() or [type(error).__name__]  # a traceback may follow
    why = " ".join(lines[0].split()).rstrip(".:")
    if address is not None:
        action = "Check the address with `ray status`, or leave it out to run on this machine."
        return ResourceError(
            Problem("--ray-address", f"{address!r} cannot be used: {why}.", action=action)
        )
    free = psutil.virtual_memory().available / 10**9
    what = f"Ray did not start on this machine: {why}."
    state = f"Its load is {os.getloadavg()[0]:.1f} on {usable_cores()} cores, and {free:.1f} GB of "
    state += "memory are free."
    action = "Run the same command again: Ray does not wait long where both are short."
    return ResourceError(Problem("ray.init", what, state, action))


def require_resources(
    needs: Sequence[Mapping[str, float]], nodes: Sequence[Mapping[str, float]]
) -> None:
    """Refuse trials that fit on no machine: Ray would wait for one for ever.

    Args:
        needs: `CPU` and `GPU` of each trial.
        nodes: `CPU` and `GPU` of each living machine. A trial never spans two.

    Raises:
        ResourceError: Names what does not fit, what there is, and the key to change.

    """
    problems = []
    for key, kind in (("resources.cpus", "CPU"), ("resources.gpus", "GPU")):
        wanted = max((need.get(kind, 0.0) for need in needs), default=0.0)
        largest = max((node.get(kind, 0.0) for node in nodes), default=0.0)
        if wanted > largest:
            problems.append(_too_much(key, kind, wanted, largest))
    together = [need for need in needs if not any(fits(need, node) for node in nodes)]
    if together and not problems:
        what = f"no machine has {_amounts(together[0])} at the same time."
        problems.append(Problem("resources", what, action="Request less of one of them."))
    if problems:
        raise ResourceError(problems)


def _too_much(key: str, kind: str, wanted: float, largest: float) -> Problem:
    action = f"Run with --set {key}={largest:g}, or give --ray-address of a larger cluster."
    if kind == "GPU" and wanted > 1:  # the second one is the rollout engine's
        action = "Run with --set resources.engine=shared, or on a machine with more GPUs."
    return Problem(
        key,
        f"a trial requests {wanted:g} {kind}s, but the largest machine has {largest:g}.",
        action=action if largest or kind == "GPU" else "Start the cluster's machines first.",
    )


def fits(need: Mapping[str, float], node: Mapping[str, float]) -> bool:
    """Tell whether one machine has all that a trial asks for."""
    return all(amount <= node.get(kind, 0.0) for kind, amount in need.items())


def _amounts(need: Mapping[str, float]) -> str:
    return " and ".join(f"{amount:g} {kind}s" for kind, amount in need.items())


def require_concurrency(max_concurrent: int | None) -> None:
    """Refuse to run no trial at a time; raises ResourceError."""
    if max_concurrent is not None and max_concurrent < 1:
        what = f"{max_concurrent} trials at a time would run none."
        raise ResourceError(Problem("--max-concurrent", what, "Give 1 or more."))
