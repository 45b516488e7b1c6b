"""S9: sweeps of one protocol agree on every key that the protocol does not free."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rltune.comparability.findings import Finding, error, warning
from rltune.comparability.single_axis import is_of_variant
from rltune.spec.identity import diff_configs, flatten, is_excluded
from rltune.spec.load import LoadedSweep
from rltune.spec.problems import show

_MOST = 8  # keys that a warning names


def check_protocol(sweeps: Sequence[LoadedSweep]) -> tuple[Finding, ...]:
    """Return where sweeps of the same protocol disagree; sweeps without a protocol are skipped."""
    own = [finding for sweep in sweeps for finding in _unfree_axis(sweep)]
    return (*own, *disagreements(sweeps))


def disagreements(sweeps: Sequence[LoadedSweep]) -> Iterator[Finding]:
    """Yield where a sweep disagrees with the first one of its protocol."""
    first: dict[str, LoadedSweep] = {}
    for sweep in sweeps:
        if sweep.protocol is not None and sweep.protocol.name in first:
            yield from _disagreement(first[sweep.protocol.name], sweep)
        elif sweep.protocol is not None:
            first[sweep.protocol.name] = sweep


def link_findings(above: LoadedSweep, sweep: LoadedSweep, *, holds_best: bool) -> Iterator[Finding]:
    """Yield in what two sweeps of a study differ that no protocol holds together.

    Seeds and the names of profiles may differ: what a profile sets is compared key by key.

    Args:
        above: The one that was run first.
        sweep: The other one.
        holds_best: Whether what the first shows to be better is held in it.

    """
    names = [one.protocol.name if one.protocol is not None else "none" for one in (above, sweep)]
    if above.protocol is not None and sweep.protocol is not None and names[0] == names[1]:
        return
    moved = {*above.axis_keys, *above.coupled_keys, *sweep.axis_keys, *sweep.coupled_keys}
    differences = _unlike(above.control.config, sweep.control.config, moved)
    if not differences:
        return
    link = f"{sweep.path} is ranked in one lineage with {above.path}"
    if holds_best:
        link = f"{sweep.path} holds what {above.path} shows to be better"
    protocol = f"under another protocol ({names[0]} and {names[1]})"
    if names == ["none", "none"]:
        protocol = "without a protocol"
    message = f"{link}, {protocol}, and differs from it in {_named(differences, most=_MOST)}."
    remedy = "Give both one value, or both one protocol that frees the key with a reason; or "
    remedy += "accept S9, with the reason, for the later sweep in the study file."
    yield warning("S9", message, remedy)


def _free(*sweeps: LoadedSweep) -> set[str]:
    """Return the keys that every sweep's protocol file frees."""
    free = [set(sweep.protocol.free) for sweep in sweeps if sweep.protocol is not None]
    return set.intersection(*free) if free else set()


def _is_free(key: str, free: Collection[str]) -> bool:
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
    differences = _unlike(_shared(a), _shared(b), free)
    if differences and a.protocol is not None:
        name = a.protocol.name
        message = f"{a.path} and {b.path} follow protocol {name} but differ in "
        message += f"{_named(differences)}."
        yield error("S9", message, f"Give both one value, or free the key in protocol {name}.")


Differences = Mapping[str, tuple[Any, Any]]  # dotted key -> both values


def _unlike(a: Mapping[str, Any], b: Mapping[str, Any], free: Collection[str]) -> Differences:
    """Return the keys in which two configs differ, without those that are free."""
    return {
        key: pair
        for key, pair in diff_configs(a, b).items()
        if not (_is_free(key, free) or is_of_variant(key, pair, free) or is_excluded(key))
    }


def _named(differences: Differences, *, most: int | None = None) -> str:
    shown = [f"{key} ({show(x)} and {show(y)})" for key, (x, y) in differences.items()]
    more = f" and {len(shown[most:])} more keys" if shown[most:] and most is not None else ""
    return ", ".join(shown[:most]) + more


def _shared(sweep: LoadedSweep) -> dict[str, Any]:
    """Return what sweeps of a protocol have in common: the control's config, seeds, metric."""
    return {
        **flatten(sweep.control.config),
        "seeds": sorted(sweep.seeds),
        "metric.name": sweep.spec.metric.name,
        "metric.mode": sweep.spec.metric.mode,
        "profile": sweep.profile,
    }
