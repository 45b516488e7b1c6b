"""Uploading the offline W&B sessions of a sweep: `wandb sync` does it, one trial after another.

A session is a folder `offline-run-TIME-ID`; a resumed trial has several of one id. `wandb sync`
uploads the sessions of an id in their order and leaves a `.synced` file, so nothing is sent twice.
A killed process leaves one that holds a part, or nothing; the tracker marks those that it ended.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from rltune.errors import InputError, Problem
from rltune.track.inherited import forget_caller

_WHOLE = "rltune-whole"
_HEADER_BYTES = 7  # of a session's `.wandb` file before its first record
_CLOUD = "https://api.wandb.ai"
_REACH_S = 5.0
OFFLINE = "Offline runs are written instead; `rltune sync` uploads them later."


def sessions(trial: Path) -> tuple[Path, ...]:
    """Return the offline sessions of a trial, oldest first."""
    return tuple(sorted((trial / "wandb").glob("offline-run-*")))


def is_synced(session: Path) -> bool:
    """Tell whether `wandb sync` has uploaded a session."""
    return any(session.glob("*.wandb.synced"))


def mark_whole(session: Path, *, step: int) -> None:
    """Say that a session, offline or online, holds all that its trial logged up to a step."""
    (session / _WHOLE).write_text(str(step), encoding="ascii")


def whole_until(trial: Path) -> int:
    """Return the last step up to which a session of a trial holds everything; -1 without one."""
    marks = (trial / "wandb").glob(f"*run-*/{_WHOLE}")
    return max((int(mark.read_text(encoding="ascii") or -1) for mark in marks), default=-1)


def is_empty(session: Path) -> bool:
    """Tell whether a kill left a session without a record, so that there is nothing to upload."""
    return not (session / _WHOLE).exists() and all(
        file.stat().st_size <= _HEADER_BYTES for file in session.glob("*.wandb")
    )


def require_server(environment: Mapping[str, str] = os.environ) -> None:
    """Refuse when there is no key for W&B, or when nobody answers; `wandb` tries for minutes.

    Raises:
        InputError: Says which, and what to do.

    """
    problem = offline_problem(environment)
    if problem is not None:
        raise InputError(problem)


def offline_problem(environment: Mapping[str, str] = os.environ) -> Problem | None:
    """Return why W&B cannot be used online now; None when it can. Takes seconds at most."""
    server = environment.get("WANDB_BASE_URL") or _CLOUD
    if not has_key(environment):
        what = f"no W&B key is set for {server}."
        action = "Run `wandb login`, or set WANDB_API_KEY, then run the same command again."
        return Problem("WANDB_API_KEY", what, action=action)
    parts = urlsplit(server)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=_REACH_S).close()
    except OSError as error:
        what = f"{server} cannot be reached ({error})."
        action = "Nothing is lost: run the same command again once it can be reached."
        return Problem("WANDB_BASE_URL", what, action=action)
    return None


def has_key(environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether a W&B key is set, in the environment or in ~/.netrc."""
    if environment.get("WANDB_API_KEY"):
        return True
    import netrc

    server = environment.get("WANDB_BASE_URL") or _CLOUD
    try:
        login = netrc.netrc().authenticators(urlsplit(server).hostname or "")
    except (OSError, netrc.NetrcParseError):
        return False
    return login is not None


def upload(offline: Sequence[Path], *, timeout_s: float) -> str:
    """Upload the sessions of one trial; return why that failed, empty when it did not.

    A session counts as uploaded when its `.synced` file is there: the command can end well
    without it.
    """
    command = [sys.executable, "-m", "wandb", "sync", *(str(one.resolve()) for one in offline)]
    environment = dict(os.environ)
    forget_caller(environment)
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd=offline[0].parents[1],  # it logs into ./wandb
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {timeout_s:g} s; the same command goes on where it was"
    left = [session.name for session in offline if not is_synced(session)]
    if done.returncode == 0 and not left:
        return ""
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return lines[-1] if lines else f"`wandb sync` ended with {done.returncode}"
