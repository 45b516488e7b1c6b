"""Single-axis sweeps of RL-trained LLM agents, with the proof that only one knob moved.

The names below are those of `rltune.api`, loaded when first used: importing rltune is cheap.
"""

# ruff: noqa: F405  (only type checkers see the names of the star import)
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltune.api import *  # noqa: F403

__all__ = [
    "Audit",
    "Band",
    "Compared",
    "EvalRow",
    "Figure",
    "GateRow",
    "HistoryRow",
    "RltuneError",
    "SummaryRow",
    "Sweep",
    "TrialRow",
    "Verdict",
    "draw",
    "frame",
    "load_sweep",
    "read_table",
]


def __getattr__(name: str) -> Any:
    """Load a public name."""
    if name not in __all__:
        raise AttributeError(f"module 'rltune' has no attribute {name!r}")
    from rltune import api

    return getattr(api, name)


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return sorted({*globals(), *__all__})
