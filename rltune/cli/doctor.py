"""`rltune doctor`: check this machine, and say how to fix what is missing."""

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path

import typer

from rltune.cli.console import emit_json, make_console
from rltune.cli.options import RUNS, Json, RunsDir, why_not_writable
from rltune.errors import ResourceError
from rltune.forecast.parameters import model_folder
from rltune.report.render import size
from rltune.rollout.vllm_setup import INSTALL, vllm_version
from rltune.runner.environment import REFUSED
from rltune.runner.machine import SHORT, socket_folder, usable_cores
from rltune.runner.process import THREAD_VARIABLES
from rltune.spec.trial_reference import RUNS_VARIABLE

PACKAGES = (
    "bm25s", "httpx", "jinja2", "numpy", "omegaconf", "pandas", "peft", "psutil", "pydantic",
    "pyyaml", "ray", "rich", "safetensors", "scipy", "tokenizers", "torch", "transformers", "typer",
    "wandb",
)  # fmt: skip
_MEMORY_BYTES = 2e9  # two tiny trials, Ray and the driver
_DISK_BYTES = 2e9


class State(StrEnum):
    """Outcome of a check."""

    OK = "ok"
    WARNING = "warning"  # it works, not as well or not as expected
    MISSING = "MISSING"  # sweeps cannot run


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check."""

    name: str
    state: State
    detail: str
    action: str = ""


def doctor(runs_dir: RunsDir = RUNS, as_json: Json = False) -> None:
    """Check whether this machine is ready. Exit code 1 if something required is missing.

    Example:
      rltune doctor

    """
    console = make_console()
    checks = []
    for item in diagnose(runs_dir):
        checks.append(item)
        if not as_json:
            console.print(f"{item.state.value:<7} {item.name}: {item.detail}", soft_wrap=True)
            if item.action:
                console.print(f"        -> {item.action}", soft_wrap=True)
    missing = [item for item in checks if item.state is State.MISSING]
    warned = [item for item in checks if item.state is State.WARNING]
    if as_json:
        emit_json({"ok": not missing, "checks": checks})
    elif missing:
        console.print(f"Not ready: {', '.join(item.name for item in missing)}.")
    else:
        note = f" ({len(warned)} to look at)" if warned else ""
        console.print(f"Ready{note}. Next: rltune sweep sweeps/quickstart.yaml")
    raise typer.Exit(1 if missing else 0)


def diagnose(runs_dir: Path) -> Iterator[Check]:
    """Run the checks one by one; the slow ones import torch and come last."""
    yield python()
    yield packages()
    yield engines()
    yield cores()
    yield memory()
    yield disk(runs_dir)
    yield threads()
    yield from ray_environment()
    yield temporary_folder()
    yield gpu()
    yield weights()


def python() -> Check:
    """Say which Python runs; pip refuses to install on one that is too old."""
    return Check("python", State.OK, f"{platform.python_version()} ({sys.executable})")


def packages() -> Check:
    """Check that the packages rltune depends on are installed."""
    versions = {name: _version(name) for name in PACKAGES}
    absent = [name for name in PACKAGES if versions[name] is None]
    detail = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    if not absent:
        return Check("packages", State.OK, detail)
    action = f"pip install {' '.join(absent)}"
    return Check("packages", State.MISSING, f"{', '.join(absent)} not installed; {detail}", action)


def engines() -> Check:
    """Say which rollout engines can be asked for; vLLM is optional, and is not loaded here."""
    vllm = vllm_version()
    if vllm is not None:
        return Check("rollout engines", State.OK, f"torch, vllm {vllm}")
    detail = f"torch; vllm is not installed, and only `rollout.engine: vllm` needs it: {INSTALL}"
    return Check("rollout engines", State.OK, detail)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def cores() -> Check:
    """Count the cores that this process may use, as affinity and the container limit them."""
    allowed = usable_cores()
    if allowed > 1:
        return Check("cores", State.OK, f"{allowed} for this process")
    return Check("cores", State.WARNING, "1 for this process", "Trials run one after another.")


def memory() -> Check:
    """Check the memory that is free now."""
    try:
        import psutil
    except ImportError:
        return Check("memory", State.WARNING, "unknown without psutil", "pip install psutil")
    free = psutil.virtual_memory().available
    detail = f"{size(free)} free of {size(psutil.virtual_memory().total)}"
    if free >= _MEMORY_BYTES:
        return Check("memory", State.OK, detail)
    action = f"Close other programs; the quickstart needs about {size(_MEMORY_BYTES)}."
    return Check("memory", State.WARNING, detail, action)


def disk(runs_dir: Path) -> Check:
    """Check the space where the run folders go, and that it can be written."""
    folder = runs_dir.absolute()
    while not folder.exists():
        folder = folder.parent
    detail = f"{size(shutil.disk_usage(folder).free)} free in {folder}"
    if why := why_not_writable(runs_dir):
        action = f"Give another folder with --runs-dir or {RUNS_VARIABLE}."
        return Check("disk", State.MISSING, why, action)
    if shutil.disk_usage(folder).free < _DISK_BYTES:
        return Check("disk", State.WARNING, detail, "Free some space; checkpoints need it.")
    return Check("disk", State.OK, detail)


def threads() -> Check:
    """Say what the environment does to threads."""
    given = [f"{name}={os.environ[name]}" for name in THREAD_VARIABLES if name in os.environ]
    what = ", ".join(given) or "not set"
    return Check("threads", State.OK, f"{what}; a trial uses resources.threads in any case")


def ray_environment() -> Iterator[Check]:
    """Yield the variables that Ray Tune refuses."""
    for name in REFUSED:
        if name in os.environ:
            detail = f"{name}={os.environ[name]} is set, which Ray Tune refuses"
            yield Check("ray environment", State.MISSING, detail, f"unset {name}")


def temporary_folder() -> Check:
    """Say where Ray's sockets go: a folder that can be written and has a short enough path."""
    try:
        folder = socket_folder()
    except ResourceError as error:
        (problem,) = error.problems
        return Check("temporary folder", State.MISSING, problem.what, problem.action)
    return Check("temporary folder", State.OK, f"{folder} for sockets (at most {SHORT} bytes)")


def gpu() -> Check:
    """Say whether torch sees a GPU; none is needed for profile laptop."""
    try:
        import torch
    except ImportError as error:
        return Check(
            "torch", State.MISSING, f"does not load: {_first_line(error)}", "pip install torch"
        )
    if not torch.cuda.is_available():
        return Check("gpu", State.OK, "none; profile laptop needs none, gpu and paper do")
    names = (torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count()))
    devices = ", ".join(f"{device.name} with {size(device.total_memory)}" for device in names)
    return Check("gpu", State.OK, devices)


def weights() -> Check:
    """Check that the shipped tiny policy is there and loads."""
    action = "rltune warmstart sokoban --out <folder of the tiny policy>, or install rltune again."
    folder = model_folder("tiny", "sokoban")
    if folder is None:
        return Check("tiny policy", State.MISSING, "the shipped weights are not there", action)
    try:
        from rltune.policy.load import load_policy

        policy = load_policy(
            "tiny",
            dtype="float32",
            template="auto",
            is_bare=True,
            env_kind="sokoban",
            device="cpu",
        )
    except Exception as error:  # whatever breaks here would break every trial
        detail = f"{folder} does not load: {_first_line(error)}"
        return Check("tiny policy", State.MISSING, detail, action)
    count = sum(parameter.numel() for parameter in policy.model.parameters())
    digest = policy.weights_sha256[:10]
    return Check("tiny policy", State.OK, f"{count:,} parameters, sha256 {digest}...")


def _first_line(error: BaseException) -> str:
    text = re.sub(r"\s+", " ", str(error)).strip()
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__
