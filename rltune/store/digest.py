"""What two runs of one trial must share: every metric but clocks and rates."""

import hashlib
from pathlib import Path

from rltune.errors import StoreError
from rltune.store.files import dumps
from rltune.store.jsonl import Row, read_metrics

_TIMING_PREFIXES = ("timing_s/", "perf/")


def is_deterministic(key: str) -> bool:
    """Tell whether a metric must be equal in two runs of one trial: all but clocks and rates."""
    return key != "time" and not key.startswith(_TIMING_PREFIXES)


def deterministic_row(row: Row) -> Row:
    """Return the part of a metrics row that two runs of one trial share."""
    return {key: value for key, value in row.items() if is_deterministic(key)}


def metrics_digest(path: Path) -> str:
    """Return the sha256 hex of the deterministic part of a metrics file; key order does not matter.

    Raises:
        StoreError: A line cannot be read: a digest of the rest would prove nothing.

    """
    read = read_metrics(path)
    if read.problems:
        raise StoreError(read.problems)
    digest = hashlib.sha256()
    for row in read.rows:
        digest.update(dumps(deterministic_row(row), sort_keys=True).encode() + b"\n")
    return digest.hexdigest()
