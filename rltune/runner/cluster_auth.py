"""Find out whether a running cluster needs a token, by asking it. Imports no Ray.

Ray does not look for it by itself when an address is given, and driver and cluster must agree. A
cluster with a token refuses a driver that sends none. A driver that demands one connects to a
cluster without, and then refuses that cluster's calls: every trial dies before it begins.
"""

import os
import subprocess
import sys
from pathlib import Path

from rltune.errors import Problem, ResourceError

MODE = "RAY_AUTH_MODE"
PATIENCE_S = 120.0  # Ray gives a silent address up after about 45 s
_REFUSED = "InvalidAuthToken"
_GIVE = (
    "Put the cluster's token in RAY_AUTH_TOKEN, in the file that RAY_AUTH_TOKEN_PATH names, or in "
    "~/.ray/auth_token."
)


def choose_auth_mode(address: str) -> None:
    """Set RAY_AUTH_MODE as the cluster at an address needs it. Call before importing Ray.

    Raises:
        ResourceError: No cluster answers there; it requires a token that is missing or wrong; or
            RAY_AUTH_MODE contradicts it.

    """
    given = os.environ.get(MODE)
    if given not in (None, "disabled", "token") or address.startswith("ray://"):
        return  # what we do not know is left to Ray
    mode = "token" if _is_refused(address, "disabled") else "disabled"
    if given not in (None, mode):
        what = f"it is {given!r}, and the cluster at {address} uses no token."
        if mode == "token":
            what = f"it is {given!r}, and the cluster at {address} requires a token."
        raise ResourceError(Problem(f"environment: {MODE}", what, action="Unset it."))
    if mode == "token":
        _require_token(address)
    os.environ[MODE] = mode


def find_token() -> tuple[str, bool]:
    """Return where Ray looks for a token, and whether there is one."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return "RAY_AUTH_TOKEN", True
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        return str(path), bool(path.read_bytes().strip())
    except OSError:
        return str(path), False


def _require_token(address: str) -> None:
    place, is_there = find_token()
    if not is_there:
        what = f"the cluster at {address} requires a token, and {place} holds none."
        raise ResourceError(Problem("--ray-address", what, action=_GIVE))
    if _is_refused(address, "token"):
        what = f"the cluster at {address} requires another token than the one in {place}."
        raise ResourceError(Problem("--ray-address", what, action=_GIVE))


def _is_refused(address: str, mode: str) -> bool:
    """Return whether a cluster refuses us without its token; raise if it cannot be used at all.

    In a process of its own: Ray reads the mode once, and prints what it meets.
    """
    command = [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", address]
    try:
        done = subprocess.run(
            command,
            env=os.environ | {MODE: mode},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            start_new_session=True,  # a Ctrl-C is for the driver
        )
    except subprocess.TimeoutExpired:
        raise _unusable(address, f"no answer within {PATIENCE_S:g} s") from None
    if done.returncode == 0:
        return False
    if _REFUSED in done.stderr:
        return True
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    raise _unusable(address, lines[-1].strip() if lines else f"exit code {done.returncode}")


def _unusable(address: str, why: str) -> ResourceError:
    action = "Check the address with `ray status`, or leave it out to run on this machine."
    what = f"{address!r} cannot be used: {why.rstrip('.')}."
    return ResourceError(Problem("--ray-address", what, action=action))
