"""A comparison in words: its verdict, one plain sentence, and notes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Group

from rltune.analysis.compare import Compared, Half, compare
from rltune.analysis.compare_sides import RERUN, Side, differing_keys, last_gate
from rltune.analysis.ends import NO_VERDICT, End, end_of, objection, obstacle
from rltune.analysis.rates import resolution_of
from rltune.analysis.tables import against, mark_of
from rltune.analysis.verdict import between
from rltune.analysis.verdict_words import EQUAL, SAME, Verdict, early, is_claim, word_of
from rltune.comparability.scored import scored_line
from rltune.errors import InputError, Problem
from rltune.maths.power import MOST
from rltune.report.render import line, plural, verbatim

_MAX_KEYS = 8  # of the configs, named in a note


def compare_and_say(a: Side, b: Side) -> Compared:
    """Compare two sides and say what follows.

    Of two conditions of one sweep it is the verdict of the sweep, adjusted over its comparisons.
    Anything else is one comparison by itself, unadjusted.

    Raises:
        InputError: They cannot be compared, and why.

    """
    if is_one_sweep(a, b):
        verdict = _verdict(a, b)
        _require_results(verdict, a, b)
        result = compare(a, b)
        needed = result.needed if result.unit == "tasks" else verdict.needed
        if verdict.looks:
            interval, n = verdict.difference.interval, verdict.n
            mean = verdict.difference.mean
            result = replace(result, difference=mean, interval=interval, n=n, p=verdict.p)
        result = replace(
            result,
            looks=len(verdict.looks),
            verdict=verdict.words,
            p_holm=verdict.p_holm,
            comparisons=verdict.comparisons,
            needed=needed,
        )
    else:
        result = _by_itself(compare(a, b), a, b)
    return replace(result, sentence=_sentence(result), notes=tuple(_notes(result, a, b)))


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


def _require_results(verdict: Verdict, a: Side, b: Side) -> None:
    """Refuse two conditions one of which has nothing to compare, with their verdict."""
    for side in (a, b):
        if a.label != b.label and not side.finals():
            what = f"{verdict.words}. No trial of {side.label} has ended with a finite metric."
            raise InputError(Problem(a.label, what, action=RERUN))


def _by_itself(result: Compared, a: Side, b: Side) -> Compared:
    """Return the comparison with the verdict of its own test."""
    marks = {side.run: against(mark_of(side.audit)) for side in (a, b)}
    stands = [f"{run}: {mark}" for run, mark in marks.items() if mark]
    ours, theirs = _ends(a, result.a), _ends(b, result.b)
    if stands:
        word = f"{NO_VERDICT} ({'; '.join(stands)})"
    elif _are_same_run(a, b):
        word = f"{NO_VERDICT} (the same run up to a factor as {result.b.label})"
    elif result.unit == "tasks":
        word = obstacle(ours, theirs, rival=result.b.label)
    else:
        word = objection(ours, theirs, n=result.n, rival=result.b.label)
    if result.unit == "tasks" and obstacle(ours, theirs, rival=result.b.label):
        result = replace(result, interval=None, test="", p=None, needed=None)
    return replace(result, verdict=word or f"{word_of(result.difference, result.p)}{_early(ours)}")


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


def _sentence(result: Compared) -> str:
    head = result.verdict.partition(";")[0]
    if is_claim(head):
        word, at, step = head.partition(" at ")
        return (
            f"{result.a.label} ends {word} {result.b.label}{at}{step} by "
            f"{abs(result.difference):.3g}{_over(result)}: {_evidence(result)}.{_same(result)}"
        )
    if head.startswith((SAME, EQUAL)):
        size = f" {_sample_size(result)}" if head.startswith(SAME) else ""
        return (
            f"{result.a.label} and {result.b.label} are {head}{_over(result)}: "
            f"{_evidence(result)}.{_same(result)}{size}"
        )
    words = f"{result.a.label} against {result.b.label}: {result.verdict}."
    if not math.isfinite(result.difference):
        return words
    return f"{words} They measured{_over(result)}: {_evidence(result)}."


def _same(result: Compared) -> str:
    """Return what the first side is the same run as."""
    same = result.verdict.partition("; ")[2]
    return f" {result.a.label} is {same}." if same else ""


def _over(result: Compared) -> str:
    if result.unit != "tasks":
        return f" over {result.n} {result.unit}" + (" a side" if result.unit == "seeds" else "")
    if result.hits is None:
        return f" on {result.n} held-out tasks"
    return f" on {result.n} held-out tasks ({result.hits[0]} and {result.hits[1]} solved)"


def _evidence(result: Compared) -> str:
    parts = [f"difference {result.difference:+.3g}"]
    if result.interval is not None:
        kind = "adjusted interval" if result.looks else "95 % interval"
        parts.append(f"{kind} {result.interval.low:+.3g} to {result.interval.high:+.3g}")
    if result.p is not None:
        parts.append(f"{result.test} p = {result.p:.2g} unadjusted")
    if result.p_holm is not None:
        over = plural(result.comparisons, "comparison")
        if result.looks:
            parts.append(f"p = {result.p_holm:.2g} over {plural(result.looks, 'look')} and {over}")
            return ", ".join(parts)
        parts.append(f"p = {result.p_holm:.2g} by Holm over {over} of the sweep")
    return ", ".join(parts)


def _sample_size(result: Compared) -> str:
    """Return how many would see a difference of the measured size."""
    unit = {"seeds": "seeds a side", "tasks": "held-out tasks"}.get(result.unit, result.unit)
    if result.difference == 0.0:
        return "Both measured the same, so no sample size follows."
    if result.unit != "tasks" and result.interval is None:
        return "The seeds have no spread, which bounds no luck, so no sample size follows."
    if result.needed is None:
        return f"No number of {unit} up to {MOST:,} is known to show a difference of this size."
    return f"About {result.needed:,} {unit} would show one of this size with 80 % power."


def _notes(result: Compared, a: Side, b: Side) -> Iterator[str]:
    yield from _of_the_test(result)
    if result.p is not None and result.unit != "tasks" and not is_one_sweep(a, b):
        yield "They belong to two sweeps: p is for this comparison alone, without adjustment."
    for run, reason in {side.run: side.audit.confounded for side in (a, b)}.items():
        if reason:
            yield f"{run} is CONFOUNDED, run anyway: {reason}."
    yield from dict.fromkeys((*a.stamps, *b.stamps))
    if scored := scored_line((*a.records, *b.records)):
        yield scored
    yield from _of_the_sides(a, b)


def _of_the_test(result: Compared) -> Iterator[str]:
    """Yield what the numbers are made from."""
    if result.unit == "tasks":
        yield (
            "One trial per side: this covers the luck of the tasks, not that of the training seed."
        )
        if result.a.seeds != result.b.seeds:
            yield f"The training seeds differ: {result.a.seeds[0]} and {result.b.seeds[0]}."
    if result.unit == "seeds":
        yield "They share fewer than two seeds, so they are compared as independent samples."
    elif result.p_sign_flip is not None:
        least = 2.0 / 2**result.n
        yield (
            f"Without assuming a normal spread (exact sign flips): p = {result.p_sign_flip:.2g} "
            f"unadjusted; {result.n} seeds cannot go below {least:.2g}."
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


def compared_view(result: Compared) -> Group:
    """Return a comparison as it is printed."""
    width = max(len(result.a.label), len(result.b.label), len("difference"))
    interval = "" if result.interval is None else f"  {_span(*result.interval, sign='+')}"
    return Group(
        line(f"{result.metric} at the last gate"),
        *(verbatim(f"  {half.label:{width}}  {_half(half)}") for half in (result.a, result.b)),
        *(
            [verbatim(f"  {'difference':{width}} {result.difference:+.4f}{interval}")]
            if math.isfinite(result.difference)
            else []
        ),
        line(result.sentence, "bold"),
        *(line(f"note: {note}") for note in result.notes),
    )


def _half(half: Half) -> str:
    span = "" if half.interval is None else f"  {_span(*half.interval)}"
    seeds = ", ".join(map(str, half.seeds))
    return f"{half.value:.4f}{span}  seed{'s' if len(half.seeds) > 1 else ''} {seeds}"


def _span(low: float, high: float, *, sign: str = "") -> str:
    return f"95 % [{low:{sign}.4f}, {high:{sign}.4f}]"
