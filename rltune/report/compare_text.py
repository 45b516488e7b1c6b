"""What a comparison says: its verdict, one plain sentence, and what a reader must know, too."""

from collections.abc import Iterator
from dataclasses import replace

from rich.console import Group

from rltune.maths.power import MOST
from rltune.report.audit import Verdict
from rltune.report.compare import (
    ABOVE,
    BELOW,
    NO_CLAIM,
    SAME,
    Compared,
    Half,
    compare,
    is_distinguishable,
)
from rltune.report.compare_sides import Side, differing_keys, last_gate
from rltune.report.render import line, verbatim
from rltune.spec.findings import SEEDS_FOR_A_CLAIM

_MAX_KEYS = 8  # of the configs, named in a note


def compare_and_say(a: Side, b: Side) -> Compared:
    """Compare two sides and say what follows.

    Raises:
        InputError: They cannot be compared, and why.

    """
    found = compare(a, b)
    forbidden = next(_forbidden(found, a, b), "")
    verdict = SAME
    if forbidden:
        verdict = NO_CLAIM
    elif is_distinguishable(found):
        verdict = ABOVE if found.difference > 0 else BELOW
    said = _ranked(found, verdict) if verdict in (ABOVE, BELOW) else _null(found)
    sentence = f"{forbidden} {said}" if forbidden else said
    return replace(found, verdict=verdict, sentence=sentence, notes=tuple(_notes(found, a, b)))


def _forbidden(found: Compared, a: Side, b: Side) -> Iterator[str]:
    """Yield why no side may be ranked."""
    for run, audit in {side.run: side.audit for side in (a, b)}.items():
        if audit.verdict is Verdict.FAILED:
            yield f"No claim is made: the audit of {run} FAILED."
        if audit.confounded:
            yield f"No claim is made: {run} is CONFOUNDED ({audit.confounded})."
    if found.unit == "tasks":
        return
    for side in (a, b):
        done = len(side.finals())
        if done < side.planned:  # those that survived are no sample of those that were planned
            yield f"No claim is made: {done} of {side.planned} seeds of {side.label} finished."


def _ranked(found: Compared, verdict: str) -> str:
    return (
        f"{found.a.label} ends {verdict} {found.b.label} by {abs(found.difference):.3g}"
        f"{_over(found)}: {_evidence(found)}."
    )


def _null(found: Compared) -> str:
    few = found.unit != "tasks" and found.n < SEEDS_FOR_A_CLAIM
    why = f"; {SEEDS_FOR_A_CLAIM} seeds are the fewest for a claim" if few else ""
    return (
        f"{found.a.label} and {found.b.label} are not distinguishable{_over(found)}: "
        f"{_evidence(found)}{why}. {_sample_size(found)}"
    )


def _over(found: Compared) -> str:
    if found.unit != "tasks":
        return f" over {found.n} {found.unit}" + (" a side" if found.unit == "seeds" else "")
    if found.hits is None:
        return f" on {found.n} held-out tasks"
    return f" on {found.n} held-out tasks ({found.hits[0]} and {found.hits[1]} solved)"


def _evidence(found: Compared) -> str:
    parts = [f"difference {found.difference:+.3g}"]
    if found.interval is not None:
        parts.append(f"95 % interval {found.interval.low:+.3g} to {found.interval.high:+.3g}")
    if found.p is not None:
        parts.append(f"{found.test} p = {found.p:.2g}")
    return ", ".join(parts)


def _sample_size(found: Compared) -> str:
    """Return how many would see a difference of the measured size."""
    unit = {"seeds": "seeds a side", "tasks": "held-out tasks"}.get(found.unit, found.unit)
    if found.difference == 0.0:
        return "They measured the same, so no sample size follows."
    if found.needed is None:
        return f"No number of {unit} up to {MOST:,} is known to show a difference of this size."
    return f"About {found.needed:,} {unit} would show one of this size with 80 % power."


def _notes(found: Compared, a: Side, b: Side) -> Iterator[str]:
    if found.unit == "tasks":
        yield (
            "Luck of the tasks only, one trial a side: what another training seed would do is not "
            "in it."
        )
        if found.a.seeds != found.b.seeds:
            yield f"Other training seeds: {found.a.seeds[0]} and {found.b.seeds[0]}."
    if found.unit == "seeds":
        yield "No two seeds are shared, so they are compared as independent samples."
    elif found.p_sign_flip is not None:
        least = 2.0 / 2**found.n
        yield (
            f"Without assuming a normal spread (exact sign flips): p = {found.p_sign_flip:.2g}; "
            f"{found.n} seeds cannot go below {least:.2g}."
        )
    done = [record for side in (a, b) for record in side.records if record.result]
    steps = sorted({int(gate["step"]) for record in done if (gate := last_gate(record))})
    if len(steps) > 1:
        yield f"Their last gates are at different steps: {', '.join(map(str, steps))}."
    keys = differing_keys(a, b)
    if keys:
        more = f" and {len(keys) - _MAX_KEYS} more" if len(keys) > _MAX_KEYS else ""
        yield f"Their configs differ in {', '.join(keys[:_MAX_KEYS])}{more}."
    sources = {r.provenance.get("source_sha256") for side in (a, b) for r in side.records}
    if len(sources - {None}) > 1:
        yield "They ran on other versions of rltune's code."


def compared_view(found: Compared) -> Group:
    """Return a comparison as it is printed."""
    width = max(len(found.a.label), len(found.b.label), len("difference"))
    interval = "" if found.interval is None else f"  {_span(*found.interval, sign='+')}"
    return Group(
        line(f"{found.metric} at the last gate"),
        *(verbatim(f"  {half.label:{width}}  {_half(half)}") for half in (found.a, found.b)),
        verbatim(f"  {'difference':{width}} {found.difference:+.4f}{interval}"),
        line(found.sentence, "bold"),
        *(line(f"note: {note}") for note in found.notes),
    )


def _half(half: Half) -> str:
    span = "" if half.interval is None else f"  {_span(*half.interval)}"
    seeds = ", ".join(map(str, half.seeds))
    return f"{half.value:.4f}{span}  seed{'s' if len(half.seeds) > 1 else ''} {seeds}"


def _span(low: float, high: float, *, sign: str = "") -> str:
    return f"95 % [{low:{sign}.4f}, {high:{sign}.4f}]"
