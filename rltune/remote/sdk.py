"""The Tinker SDK, an optional extra; it is imported when it is used."""

import os
from importlib.util import find_spec

from rltune.errors import InputError, Problem

EXTRA = "pip install 'rltune[tinker]'"


def require_sdk(where: str) -> None:
    """Refuse what needs the SDK where it is not installed, and keep its telemetry off.

    Args:
        where: The key or command that needs it.

    Raises:
        InputError: It is not installed.

    """
    if find_spec("tinker") is None:
        what = "needs the Tinker SDK, which is not installed."
        raise InputError(Problem(where, what, action=f"Run {EXTRA}."))
    os.environ.setdefault("TINKER_TELEMETRY", "0")
