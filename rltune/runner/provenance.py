"""Provenance of a result: code, packages, machine, weights, tasks. The audit (A1) compares it.

The driver reads the code's commit once, before anything starts. A worker checks that it runs that
code: an edit during a sweep, or another installation on another machine, shows in its record.
"""

import hashlib
import io
import os
import platform
import re
import socket
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

import rltune
import rltune_envs
from rltune.comparability.audit_provenance import PACKAGES
from rltune.rollout.vllm_setup import DISTRIBUTIONS, vllm_version
from rltune.spec.schema.env import CustomEnvConfig
from rltune.spec.schema.env_taskset import TASKSET_ENV
from rltune.spec.schema.env_verified import VerifiedConfig
from rltune.spec.schema.trial import TrialConfig
from rltune.store.files import utc_now
from rltune.store.secret import masked

GENERATES = ("reasoning-gym", "sympy")  # what makes and scores the problems of an env.source
COMPARES = ("math-verify", "sympy")  # what compares mathematics
RUNS_TASKSETS = ("verifiers",)  # what reads and grades the tasks of a taskset
EARLIER = (
    *("attempt", "host", "node", "started"),
    *("commit", "dirty", "diff_sha256", "source_sha256", "versions"),
    *("device", "cpu_model", "dtype", "engine", "threads", "remote"),
    *("weights_sha256", "tokenizer_sha256", "prompt_sha256", "manifest_sha256", "base", "inputs"),
    "inputs_changed",
)
"""Keys that provenance.json keeps of an earlier attempt: the audit compares or names them."""
_RECORDED_APART = frozenset((*PACKAGES, "python", *DISTRIBUTIONS))
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_FOLDERS = tuple(Path(package.__path__[0]).resolve() for package in (rltune, rltune_envs))


@dataclass(frozen=True, slots=True)
class CodeState:
    """Which code runs."""

    commit: str  # commit of the checkout; the installed version when rltune is no checkout
    dirty: bool  # whether the code differs from the commit, new files included
    diff_sha256: str  # digest of that difference; empty when there is none
    source_sha256: str  # digest of the Python files themselves

    @property
    def label(self) -> str:
        """The commit, with `-dirty` when the code differs from it."""
        return f"{self.commit}-dirty" if self.dirty else self.commit


@dataclass(frozen=True, slots=True)
class DriverProvenance:
    """The driver's part of every trial's provenance."""

    code: CodeState
    argv: tuple[str, ...]


def driver_provenance(argv: Sequence[str]) -> DriverProvenance:
    """Collect the driver's part, once a launch."""
    return DriverProvenance(code_state(), tuple(masked(word) for word in argv))


def code_state() -> CodeState:
    """Return the state of the code that this process would run now."""
    source = source_digest()
    commit = _git("rev-parse", "HEAD") if _is_checkout() else None
    if commit is None:
        return CodeState(rltune_version(), False, "", source)
    # Only the code: a README edited between two launches must not part their trials.
    paths = ("--", *map(str, _FOLDERS))
    diff = _git("diff", "HEAD", *paths) or b""
    new = _git("ls-files", "--others", "--exclude-standard", "--full-name", *paths) or b""
    is_dirty = bool(diff or new)
    changes = hashlib.sha256(diff)
    if new:  # the digest of the sources stands for the content of files that git does not know
        changes.update(new + source.encode())
    digest = changes.hexdigest() if is_dirty else ""
    return CodeState(commit.decode().strip(), is_dirty, digest, source)


def code_of_worker(driver: CodeState) -> CodeState:
    """Return the driver's code state, or what runs here instead when the files differ."""
    source = source_digest()
    if source == driver.source_sha256:
        return driver
    return CodeState(driver.commit, True, source, source)


def source_digest() -> str:
    """Return the sha256 over the names and bytes of rltune's Python files."""
    digest = hashlib.sha256()
    for folder in _FOLDERS:
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(folder.parent).as_posix()
            digest.update(_digested(name, path.read_bytes()))
    return digest.hexdigest()


def _digested(name: str, content: bytes) -> bytes:
    return f"{name}\0".encode() + hashlib.sha256(content).digest()


def source_digest_at(commit: str) -> str | None:
    """Return the same of a commit of this checkout; None where it does not have that commit."""
    if not _is_checkout() or not _COMMIT.fullmatch(commit):
        return None
    digest = hashlib.sha256()
    for folder, place in zip(_FOLDERS, ("rltune", "envs/rltune_envs"), strict=True):
        packed = _git("archive", "--format=tar", f"{commit}:{place}", at=_FOLDERS[0].parent)
        if packed is None:
            return None
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            files = {
                PurePosixPath(folder.name, member.name): member
                for member in archive.getmembers()
                if member.isfile() and member.name.endswith(".py")
            }
            for path in sorted(files):
                content = archive.extractfile(files[path])
                digest.update(_digested(str(path), content.read() if content else b""))
    return digest.hexdigest()


def versions(more: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on.

    Args:
        more: Packages that only some results depend on.

    """
    known = dict.fromkeys(name for name in sorted(more) if name not in _RECORDED_APART)
    installed = {name: _version(name) for name in (*PACKAGES, *known)}
    if vllm := vllm_version():
        installed["vllm"] = vllm
    return {"python": platform.python_version(), **installed, "rltune": rltune_version()}


def graders(config: TrialConfig) -> tuple[str, ...]:
    """Return the packages that make or grade the problems of a config, where rltune does not."""
    env = config.env
    if isinstance(env, CustomEnvConfig):
        return RUNS_TASKSETS if env.factory == TASKSET_ENV else ()
    if not isinstance(env, VerifiedConfig):
        return ()
    is_compared = env.verifier.options().get("compare") == "math_verify"
    return (*(GENERATES if env.source else ()), *(COMPARES if is_compared else ()))


def rltune_version() -> str:
    """Return the installed version, or `source` when rltune runs from a folder on the path."""
    return _version("rltune") or "source"


def trial_provenance(
    driver: DriverProvenance,
    config: TrialConfig,
    *,
    attempt: int,
    device: str,
    manifest_sha256: str,
    base: Path,
    inputs: Mapping[str, str],
    packages: Iterable[str] = (),
    node: str = "",
) -> dict[str, Any]:
    """Return the content of provenance.json, collected in the process that trains.

    The digests of weights, tokenizer and prompt are empty until they are loaded.

    Args:
        driver: The driver's part.
        config: Of the trial.
        attempt: Which attempt of the trial, from 1.
        device: `cpu`, or a torch device of a GPU.
        manifest_sha256: Digest of the frozen tasks.
        base: Folder to which relative paths refer.
        inputs: File that the trial reads, as `rltune.store.inputs` names it -> its sha256.
        packages: Installed packages that its custom code imports.
        node: Name and id of the cluster's machine; empty outside Ray.

    """
    code = code_of_worker(driver.code)
    return {
        **asdict(code),
        "versions": versions((*graders(config), *packages)),
        "host": socket.gethostname(),
        "node": node,
        "pid": os.getpid(),
        "device": device_name(device),
        "cpu_model": cpu_model(),
        "dtype": config.policy.dtype,
        "engine": config.rollout.engine if config.trainer.backend == "torch" else "tinker",
        "engine_place": config.resources.engine,
        "threads": config.resources.threads,
        "remote": {},
        "weights_sha256": "",
        "tokenizer_sha256": "",
        "prompt_sha256": "",
        "manifest_sha256": manifest_sha256,
        "base": str(base.absolute()),
        "inputs": dict(inputs),
        "inputs_changed": [],  # while it ran; seen at its end
        "argv": list(driver.argv),
        "attempt": attempt,
        "started": utc_now(),
    }


def earlier_attempts(before: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the earlier attempts as the audit needs them, oldest first.

    An attempt whose weights_sha256 is empty ended before it had loaded any, so it trained nothing.

    Args:
        before: provenance.json of the last attempt; empty when there was none.

    """
    if not before:
        return []
    return [*before.get("earlier", []), {key: before.get(key) for key in EARLIER}]


def device_name(device: str) -> str:
    """Return `cpu`, or the name of the GPU."""
    if device == "cpu":
        return device
    import torch

    return torch.cuda.get_device_name(device)


@cache
def cpu_model() -> str:
    """Return the processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _is_checkout() -> bool:
    """Return whether git tracks this package; it does not inside a virtual environment."""
    return _git("ls-files", "--error-unmatch", str(_FOLDERS[0] / "__init__.py")) is not None


def _git(*arguments: str, at: Path = _FOLDERS[0]) -> bytes | None:
    """Return the output of a git command, or None if it fails or git is missing."""
    command = ["git", "-C", str(at), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
