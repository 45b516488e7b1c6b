"""The record of fresh tasks: what every generation of a model did on tasks that none had seen."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rltune.analysis.generations import START
from rltune.errors import Problem, StoreError
from rltune.lineage.generations import Generations
from rltune.store.files import read_json
from rltune_envs.draw import MAX_SPLIT_SEED

FORMAT = "rltune-fresh-1"
FRESH = "fresh.json"
"""Name of the file."""

_KEYS = {"format", "youngest", "looks", "tasks", "generations"}


def split_seed_of(name: str) -> int:
    """Return the split seed of the youngest generation: each has fresh tasks of its own.

    Tasks by which somebody chose to go on from a generation do not serve for the next one.
    """
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % (MAX_SPLIT_SEED + 1)


def read_fresh(path: Path, found: Generations, *, again: bool = False) -> dict[str, Any] | None:
    """Return what playing fresh tasks recorded for a chain; None where nobody did.

    Args:
        path: The file, which may not exist.
        found: The chain.
        again: Whether they are played again, so that older generations may be others by now.

    Raises:
        StoreError: The file is no such record, or of another chain.

    """
    if not path.is_file():
        return None
    record, youngest = read_json(path), found.chain[-1]
    if not isinstance(record, dict) or not set(record) >= _KEYS or record["format"] != FORMAT:
        raise StoreError(Problem(str(path), "is no record of fresh tasks.", action="Restore it."))
    if record["youngest"] != youngest.name:
        what = f"it is of {record['youngest']}, not of {youngest.name}."
        raise StoreError(Problem(str(path), what, action="Give another --out."))
    if not again and played(record) != names_of(found):
        what = "it is of other generations than are found now."
        action = f"Play again: --fresh {len(record['tasks'])} --again (each time is counted)."
        raise StoreError(Problem(str(path), what, action=action))
    return record


def played(record: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return name and step of each generation that played, in their order."""
    return [(one.get("name"), one.get("step")) for one in record["generations"]]


def names_of(found: Generations) -> list[tuple[str, int]]:
    """Return name and step of each generation of a chain, its start first."""
    return [(START, 0), *((one.name, one.step) for one in found.chain)]
