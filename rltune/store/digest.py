"""What two runs of one trial must share: every metric but clocks and rates."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rltune.errors import StoreError
from rltune.store.files import dumps
from rltune.store.jsonl import Row, read_metrics

_OF_THE_RUN = ("timing_s/", "perf/", "tinker/")


def is_deterministic(key: str) -> bool:
    """Tell whether a metric must be equal in two runs of one trial.

    All must but clocks, rates, and the calls to a training service: a resume makes some again.
    """
    return key != "time" and not key.startswith(_OF_THE_RUN)


def deterministic_row(row: Mapping[str, Any]) -> Row:
    """Return the part of a metrics row that two runs of one trial share."""
    return {key: value for key, value in row.items() if is_deterministic(key)}


def metrics_digest(path: Path) -> str:
    """Return the digest of a metrics file, as `rows_digest` does.

    Raises:
        StoreError: A line cannot be read: a digest of the rest would prove nothing.

    """
    read = read_metrics(path)
    if read.problems:
        raise StoreError(read.problems)
    return rows_digest(read.rows)


def rows_digest(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the sha256 hex of what two runs share of metrics rows; key order does not matter."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(dumps(deterministic_row(row), sort_keys=True).encode() + b"\n")
    return digest.hexdigest()
