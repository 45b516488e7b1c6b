"""What the markers DONE and FAILED of a trial hold, read strictly."""

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from rltune.errors import Problem, StoreError
from rltune.store.failure import TrialFailure
from rltune.store.files import loads
from rltune.types import RowStatus, TrialResult, TrialStatus


def read_marker(path: Path) -> Any | None:
    """Return what a marker holds; None when there is none, or half of one."""
    try:
        return loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def read_result(path: Path) -> TrialResult | None:
    """Return the result in a DONE marker; None when there is no marker, or half of one.

    Raises:
        StoreError: It holds something else.

    """
    marker = read_marker(path)
    if marker is None:
        return None
    data = require_fields(marker, TrialResult, path)
    try:
        return _result_from(data)
    except (TypeError, ValueError, AttributeError) as error:
        raise StoreError(Problem(str(path), f"does not hold a TrialResult ({error}).")) from error


def read_failure(path: Path) -> TrialFailure | None:
    """Return the failure in a FAILED marker; None when there is no marker, or half of one.

    Raises:
        StoreError: It holds something else.

    """
    marker = read_marker(path)
    if marker is None:
        return None
    data = require_fields(marker, TrialFailure, path)
    try:
        return TrialFailure(**data | {"kind": RowStatus(data["kind"])})
    except ValueError as error:
        raise StoreError(Problem(str(path), f"does not hold a TrialFailure ({error}).")) from error


def require_fields(data: Any, record: type, path: Path) -> dict[str, Any]:
    """Return the object when its keys are fields of `record`, including all without a default."""
    names = {field.name for field in fields(record)}
    needed = {f.name for f in fields(record) if f.default is f.default_factory is MISSING}
    if not isinstance(data, dict) or not needed <= set(data) <= names:
        given = sorted(data) if isinstance(data, dict) else type(data).__name__
        raise StoreError(
            Problem(
                str(path),
                f"does not hold a {record.__name__}: it has {given}.",
                f"Expected {sorted(names)}.",
                "Another version of rltune wrote it; move the file away to run the trial again.",
            )
        )
    return data


def _result_from(data: dict[str, Any]) -> TrialResult:
    """Build the result; its floats may be the strings that stand for NaN and the infinities."""
    metrics = ("heldout_metric", "base_metric", "final_metric", "pool_metric", "train_s", "total_s")
    typed: dict[str, Any] = {name: float(data[name]) for name in metrics}
    typed["status"] = TrialStatus(data["status"])
    typed["warnings"] = tuple(map(str, data.get("warnings", ())))
    typed["budget"] = {key: float(value) for key, value in data["budget"].items()}
    return TrialResult(**data | typed)
