"""comparability.json: what the check before a run found, as everything after the run reads it."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeGuard

from rltune.comparability.findings import PROPORTIONAL
from rltune.errors import Problem, StoreError
from rltune.store.files import read_json
from rltune.store.rundir import RunDir


def confounded_reason(run: RunDir) -> str:
    """Return why a sweep ran although its proof failed; empty when the proof holds."""
    proof = read_proof(run)
    if proof.get("ok", True):
        return ""
    return str(proof.get("allow_confounded") or "no reason was recorded")


def unproved(run: RunDir) -> str:
    """Return why nothing follows from the trials of a folder without a proof; empty with one.

    The proof is written before the plan, and the plan before any trial: one that is missing was
    deleted.
    """
    if run.comparability.is_file():
        return ""
    return (
        "comparability.json is missing, and no trial starts before it is written: nothing shows "
        "that the check before the run passed"
    )


def open_warnings(run: RunDir) -> tuple[str, ...]:
    """Return what the proof has against the axis and nobody remedied or accepted with a reason.

    Hidden second axes (S8), and conditions that are nearly the same run (S6).
    """
    return tuple(
        f"{item.get('code') or item['rule']} warning, neither remedied nor accepted: "
        f"{item['message']}"
        for item in _open(run)
        if item["rule"] in ("S6", "S8")
    )


def same_runs(run: RunDir) -> dict[str, tuple[str, ...]]:
    """Return condition -> those that the proof found to be the same run up to a factor.

    Pairs that the sweep accepted with a reason are left out, as from the warnings.
    """
    same: dict[str, tuple[str, ...]] = {}
    for item in _open(run):
        labels = item.get("conditions") or ()
        if item.get("code") == PROPORTIONAL:
            for one in labels:
                others = tuple(label for label in labels if label != one)
                same[one] = (*same.get(one, ()), *others)
    return same


def _open(run: RunDir) -> list[Mapping[str, Any]]:
    """Return the warnings of the proof that were not accepted with a reason."""
    warnings = read_proof(run).get("warnings", ())
    return [item for item in warnings if not item.get("accepted_reason")]


def read_proof(run: RunDir) -> Mapping[str, Any]:
    """Return what the check before the run found; nothing where no such file is.

    Raises:
        StoreError: The file is torn, or holds something else.

    """
    if not run.comparability.is_file():
        return {}
    proof = None
    with suppress(StoreError):  # what it advises, to delete the file, would undo a failed proof
        proof = read_json(run.comparability)
    if not _is_proof(proof):
        what = "this is not what the check before the run writes."
        action = "Run the sweep's command again, which writes it anew, or restore the file."
        raise StoreError(Problem(str(run.comparability), what, action=action))
    return proof


_FINDING = {"rule": str, "severity": str, "message": str}
_LISTS: Mapping[str, Mapping[str, type]] = {
    "errors": _FINDING,
    "warnings": _FINDING,
    "axis_table": {"condition": str, "is_control": bool, "settings": dict},
}
"""List of a proof -> what each of its items has at least."""


def _is_proof(content: Any) -> TypeGuard[dict[str, Any]]:
    if not isinstance(content, dict) or not isinstance(content.get("ok"), bool):
        return False
    lists = ((content.get(name, []), kinds) for name, kinds in _LISTS.items())
    return all(
        isinstance(items, list) and all(_has(item, kinds) for item in items)
        for items, kinds in lists
    )


def _has(item: Any, kinds: Mapping[str, type]) -> bool:
    return isinstance(item, dict) and all(
        isinstance(item.get(key), kind) for key, kind in kinds.items()
    )
