"""`env: {kind: verifiers, id: ...}`: a taskset of the package `verifiers`, as a custom class."""

from collections.abc import Collection
from typing import Any

TASKSETS = "verifiers"
"""The kind."""

TASKSET_ENV = "rltune_envs.taskset:TasksetEnv"
"""The class behind it; it gets the keys that are its own, and is guarded like any custom class."""


def long_taskset(value: dict[str, Any], shared: Collection[str]) -> dict[str, Any]:
    """Return the section as that of a custom class.

    Args:
        value: The section.
        shared: Keys that every environment has.

    """
    own = {key: item for key, item in value.items() if key in shared}
    arguments = {key: item for key, item in value.items() if key not in shared}
    return {**own, "kind": "custom", "factory": TASKSET_ENV, "arguments": arguments}


def taskset_module(id: str) -> str:
    """Return the module of a taskset, as the package derives it from `owner/name@version`."""
    return id.rpartition("/")[2].partition("@")[0].replace("-", "_").lower()
