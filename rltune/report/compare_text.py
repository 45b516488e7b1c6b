"""A comparison in words: its verdict, one plain sentence, and notes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Group

from rltune.analysis.compare import Compared, Half, compare
from rltune.analysis.compare_sides import RERUN, Side, differing_keys, last_gate
from rltune.analysis.ends import End, end_of, obstacle
from rltune.analysis.rates import resolution_of
from rltune.analysis.tables import against, mark_of
from rltune.analysis.verdict import (
    NO_VERDICT,
    SAME,
    Verdict,
    between,
    early,
    is_claim,
    objection,
    word_of,
)
from rltune.comparability.scored import scored_line
from rltune.errors import InputError, Problem
from rltune.maths.power import MOST
from rltune.report.render import line, verbatim

_MAX_KEYS = 8  # of the configs, named in a note


def compare_and_say(a: Side, b: Side) -> Compared:
    """Compare two sides and say what follows.

    Of two conditions of one sweep it is the verdict of the sweep, adjusted over its comparisons.
    Anything else is one comparison by itself, unadjusted.

    Raises:
        InputError: They cannot be compared, and why.

    """
    if is_one_sweep(a, b):
        said = _verdict(a, b)
        _require_results(said, a, b)
        found = compare(a, b)
        needed = found.needed if found.unit == "tasks" else said.needed
        found = replace(
            found,
            verdict=said.words,
            p_holm=said.p_holm,
            comparisons=said.comparisons,
            needed=needed,
        )
    else:
        found = _by_itself(compare(a, b), a, b)
    return replace(found, sentence=_sentence(found), notes=tuple(_notes(found, a, b)))


def is_one_sweep(a: Side, b: Side) -> bool:
    """Tell whether both sides are conditions of one sweep, which has a verdict about them."""
    ids = [{record.spec.trial_id for record in side.sweep} for side in (a, b)]
    return a.run == b.run and bool(ids[0]) and ids[0] == ids[1]


def _verdict(a: Side, b: Side) -> Verdict:
    """Return the verdict of the sweep about two of its conditions."""
    tasks = int(a.records[0].spec.config["gate"]["tasks"])
    return between(
        a.label,
        b.label,
        [end_of(record) for record in a.sweep],
        resolution=resolution_of(a.metric, tasks=tasks),
        against=against(mark_of(a.audit)),
        same_runs=a.same_runs,
    )


def _require_results(said: Verdict, a: Side, b: Side) -> None:
    """Refuse two conditions one of which has nothing to compare, with their verdict."""
    for side in (a, b):
        if a.label != b.label and not side.finals():
            what = f"{said.words}. No trial of {side.label} has ended with a finite metric."
            raise InputError(Problem(a.label, what, action=RERUN))


def _by_itself(found: Compared, a: Side, b: Side) -> Compared:
    """Return the comparison with the verdict of its own test."""
    marks = {side.run: against(mark_of(side.audit)) for side in (a, b)}
    stands = [f"{run}: {mark}" for run, mark in marks.items() if mark]
    ours, theirs = _ends(a, found.a), _ends(b, found.b)
    if stands:
        word = f"{NO_VERDICT} ({'; '.join(stands)})"
    elif _are_same_run(a, b):
        word = f"{NO_VERDICT} (the same run up to a factor as {found.b.label})"
    elif found.unit == "tasks":
        word = obstacle(ours, theirs, rival=found.b.label)
    else:
        word = objection(ours, theirs, n=found.n, rival=found.b.label)
    if found.unit == "tasks" and obstacle(ours, theirs, rival=found.b.label):
        found = replace(found, interval=None, test="", p=None, needed=None)
    return replace(found, verdict=word or f"{word_of(found.difference, found.p)}{_early(ours)}")


def _are_same_run(a: Side, b: Side) -> bool:
    """Tell whether trials of one sweep are of conditions that are one run up to a factor."""
    conditions = [side.records[0].spec.condition for side in (a, b)]
    return a.run == b.run and conditions[1] in a.same_runs.get(conditions[0], ())


def _early(ends: Sequence[End]) -> str:
    """Return the step that both sides reached, where it is before the last planned one."""
    step = next((end.step for end in ends if end.value is not None), None)
    return early(step, ends[0].planned)


def _ends(side: Side, half: Half) -> list[End]:
    """Return how the trials of a side ended; of a comparison over tasks the one trial."""
    every = [end_of(record) for record in side.records]
    return every if half.planned > 1 else [end for end in every if end.seed in half.seeds]


def _sentence(found: Compared) -> str:
    head = found.verdict.partition(";")[0]
    if is_claim(head):
        word, at, step = head.partition(" at ")
        return (
            f"{found.a.label} ends {word} {found.b.label}{at}{step} by "
            f"{abs(found.difference):.3g}{_over(found)}: {_evidence(found)}.{_same(found)}"
        )
    if head.startswith(SAME):
        return (
            f"{found.a.label} and {found.b.label} are {head}{_over(found)}: "
            f"{_evidence(found)}.{_same(found)} {_sample_size(found)}"
        )
    said = f"{found.a.label} against {found.b.label}: {found.verdict}."
    if not math.isfinite(found.difference):
        return said
    return f"{said} They measured{_over(found)}: {_evidence(found)}."


def _same(found: Compared) -> str:
    """Return what the first side is the same run as."""
    same = found.verdict.partition("; ")[2]
    return f" {found.a.label} is {same}." if same else ""


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
        parts.append(f"{found.test} p = {found.p:.2g} unadjusted")
    if found.p_holm is not None:
        parts.append(f"p = {found.p_holm:.2g} by Holm over {_comparisons(found.comparisons)}")
    return ", ".join(parts)


def _comparisons(n: int) -> str:
    return f"{n} comparison{'' if n == 1 else 's'} of the sweep"


def _sample_size(found: Compared) -> str:
    """Return how many would see a difference of the measured size."""
    unit = {"seeds": "seeds a side", "tasks": "held-out tasks"}.get(found.unit, found.unit)
    if found.difference == 0.0:
        return "Both measured the same, so no sample size follows."
    if found.unit != "tasks" and found.interval is None:
        return "The seeds have no spread, which bounds no luck, so no sample size follows."
    if found.needed is None:
        return f"No number of {unit} up to {MOST:,} is known to show a difference of this size."
    return f"About {found.needed:,} {unit} would show one of this size with 80 % power."


def _notes(found: Compared, a: Side, b: Side) -> Iterator[str]:
    yield from _of_the_test(found)
    if found.p is not None and found.unit != "tasks" and not is_one_sweep(a, b):
        yield "They belong to two sweeps: p is for this comparison alone, without adjustment."
    for run, reason in {side.run: side.audit.confounded for side in (a, b)}.items():
        if reason:
            yield f"{run} is CONFOUNDED, run anyway: {reason}."
    yield from dict.fromkeys((*a.stamps, *b.stamps))
    if scored := scored_line((*a.records, *b.records)):
        yield scored
    yield from _of_the_sides(a, b)


def _of_the_test(found: Compared) -> Iterator[str]:
    """Yield what the numbers are made from."""
    if found.unit == "tasks":
        yield (
            "One trial per side: this covers the luck of the tasks, not that of the training seed."
        )
        if found.a.seeds != found.b.seeds:
            yield f"The training seeds differ: {found.a.seeds[0]} and {found.b.seeds[0]}."
    if found.unit == "seeds":
        yield "They share fewer than two seeds, so they are compared as independent samples."
    elif found.p_sign_flip is not None:
        least = 2.0 / 2**found.n
        yield (
            f"Without assuming a normal spread (exact sign flips): p = {found.p_sign_flip:.2g} "
            f"unadjusted; {found.n} seeds cannot go below {least:.2g}."
        )


def _of_the_sides(a: Side, b: Side) -> Iterator[str]:
    """Yield in what the two sides differ."""
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
        yield "They ran on different versions of rltune's code."


def compared_view(found: Compared) -> Group:
    """Return a comparison as it is printed."""
    width = max(len(found.a.label), len(found.b.label), len("difference"))
    interval = "" if found.interval is None else f"  {_span(*found.interval, sign='+')}"
    return Group(
        line(f"{found.metric} at the last gate"),
        *(verbatim(f"  {half.label:{width}}  {_half(half)}") for half in (found.a, found.b)),
        *(
            [verbatim(f"  {'difference':{width}} {found.difference:+.4f}{interval}")]
            if math.isfinite(found.difference)
            else []
        ),
        line(found.sentence, "bold"),
        *(line(f"note: {note}") for note in found.notes),
    )


def _half(half: Half) -> str:
    span = "" if half.interval is None else f"  {_span(*half.interval)}"
    seeds = ", ".join(map(str, half.seeds))
    return f"{half.value:.4f}{span}  seed{'s' if len(half.seeds) > 1 else ''} {seeds}"


def _span(low: float, high: float, *, sign: str = "") -> str:
    return f"95 % [{low:{sign}.4f}, {high:{sign}.4f}]"
