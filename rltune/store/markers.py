"""What the markers DONE and FAILED of a trial hold, read strictly."""

from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from rltune.errors import Problem, StoreError
from rltune.store.failure import TrialFailure
from rltune.store.files import loads
from rltune.types import RowStatus, TrialResult, TrialStatus

Record = TypeVar("Record")


def read_marker(path: Path) -> Any | None:
    """Return what a marker holds; None when there is none, or half of one."""
    try:
        return loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def read_result(path: Path) -> TrialResult | None:
    """Return the result in a DONE marker; as `_read`."""
    return _read(path, TrialResult, _result_from)


def read_failure(path: Path) -> TrialFailure | None:
    """Return the failure in a FAILED marker; as `_read`."""
    return _read(path, TrialFailure, _failure_from)


def _read(
    path: Path, record: type[Record], build: Callable[[dict[str, Any]], Record]
) -> Record | None:
    """Return the record in a marker; None when there is no marker, or half of one.

    Raises:
        StoreError: It holds something else.

    """
    marker = read_marker(path)
    if marker is None:
        return None
    data = require_fields(marker, record, path)
    try:
        return build(data)
    except (TypeError, ValueError, AttributeError) as error:
        what = f"does not hold a {record.__name__} ({error})."
        raise StoreError(Problem(str(path), what)) from error


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


def _failure_from(data: dict[str, Any]) -> TrialFailure:
    return TrialFailure(**data | {"kind": RowStatus(data["kind"])})
