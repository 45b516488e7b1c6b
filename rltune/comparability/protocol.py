"""S9: sweeps of one protocol agree on every key that the protocol does not free."""

from collections.abc import Iterator, Sequence
from typing import Any

from rltune.comparability.findings import Finding, error
from rltune.comparability.single_axis import is_of_variant
from rltune.spec.identity import diff_configs, flatten, is_excluded
from rltune.spec.load import LoadedSweep
from rltune.spec.problems import show


def check_protocol(sweeps: Sequence[LoadedSweep]) -> tuple[Finding, ...]:
    """Return where sweeps of the same protocol disagree; sweeps without a protocol are skipped."""
    found: list[Finding] = []
    groups: dict[str, list[LoadedSweep]] = {}
    for sweep in sweeps:
        if sweep.protocol is not None:
            groups.setdefault(sweep.protocol.name, []).append(sweep)
    for members in groups.values():
        for sweep in members:
            found += _unfree_axis(sweep)
        for other in members[1:]:
            found += _disagreement(members[0], other)
    return tuple(found)


def _free(*sweeps: LoadedSweep) -> set[str]:
    """Return the keys that every sweep's protocol file frees."""
    free = [set(sweep.protocol.free) for sweep in sweeps if sweep.protocol is not None]
    return set.intersection(*free) if free else set()


def _is_free(key: str, free: set[str]) -> bool:
    return any(key == other or key.startswith(other + ".") for other in free)


def _unfree_axis(sweep: LoadedSweep) -> Iterator[Finding]:
    free = _free(sweep)
    moving = (*sweep.axis_keys, *sweep.coupled_keys)
    fixed = [key for key in moving if not _is_free(key, free)]
    if fixed and sweep.protocol is not None:
        name = sweep.protocol.name
        message = f"{sweep.path} moves {', '.join(fixed)}, which protocol {name} does not free."
        remedy = f"Add the key under free in protocol {name} with a reason, or leave the protocol."
        yield error("S9", message, remedy)


def _disagreement(a: LoadedSweep, b: LoadedSweep) -> Iterator[Finding]:
    free = _free(a, b)
    differences: dict[str, tuple[Any, Any]] = {
        key: pair
        for key, pair in diff_configs(_shared(a), _shared(b)).items()
        if not (_is_free(key, free) or is_of_variant(key, pair, free) or is_excluded(key))
    }
    if differences and a.protocol is not None:
        named = ", ".join(f"{k} ({show(x)} and {show(y)})" for k, (x, y) in differences.items())
        name = a.protocol.name
        message = f"{a.path} and {b.path} follow protocol {name} but differ in {named}."
        yield error("S9", message, f"Give both one value, or free the key in protocol {name}.")


def _shared(sweep: LoadedSweep) -> dict[str, Any]:
    """Return what sweeps of a protocol have in common: the control's config, seeds, metric."""
    return {
        **flatten(sweep.control.config),
        "seeds": sorted(sweep.seeds),
        "metric.name": sweep.spec.metric.name,
        "metric.mode": sweep.spec.metric.mode,
        "profile": sweep.profile,
    }
