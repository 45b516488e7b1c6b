"""What the seeds of a plan can show, as text and as data."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType

from rltune.analysis.pilot import Pilot
from rltune.analysis.power import POWER, Design, Needed, PowerPlan, Shown, smallest_size
from rltune.maths.interval import Interval
from rltune.report.render import grid, indent, line, plural, quantity
from rltune.spec.load import LoadedSweep

_SOME_KEYS = 4
_POWER = f"{100 * POWER:.0f} % power"


def looks_json(design: Design) -> dict[str, Any]:
    """Return the looks of seeds until decided as data; empty for a list of seeds."""
    if design.until is None:
        return {}
    looks = zip(design.until.counts, design.boundaries, strict=True)
    boundaries = [{"seeds": n, "boundary": p} for n, p in looks]
    return {"looks": {"boundaries": boundaries, "smallest_size": smallest_size(design)}}


def looks_view(design: Design) -> RenderableType:
    """Return the boundary of each look, and the smallest effect that they find."""
    if design.until is None:
        return Group()
    table = grid(["look at seeds", "decides at p of"], right=(0, 1))
    for n, p in zip(design.until.counts, design.boundaries, strict=True):
        table.add_row(str(n), f"{p:.2g}")
    size = smallest_size(design)
    found = f"Found with {_POWER}: "
    found += "no effect" if size is None else f"{size:.2f} standard deviations of the differences"
    head = f"Looks, which err at most 5 % together; {_conditions(design)}"
    hint = line(f"{found}. In the metric's unit: --power.")
    return Group(line(head, "bold"), indent(table), indent(hint), line())


def power_json(plan: PowerPlan) -> dict[str, Any]:
    """Return the plan as data; the true effects of `expected` are texts."""
    return {
        **asdict(plan),
        "level": plan.design.level,
        "power": POWER,
        "expected": {f"{true:g}": asdict(one) for true, one in plan.expected.items()},
    }


def power_view(plan: PowerPlan, loaded: LoadedSweep) -> RenderableType:
    """Return what the seeds can show, where its spread is from, and what an effect needs."""
    metric = loaded.spec.metric.name
    head = f"What the seeds can show of {metric}, with {_POWER}; "
    return Group(
        line(f"{head}{_conditions(plan.design)}", "bold"),
        *map(indent, _spread_lines(plan.pilot)),
        line(),
        indent(_shown_table(plan)),
        *(indent(line(text)) for text in _sentences(plan)),
        line(),
    )


def _conditions(design: Design) -> str:
    count = plural(design.comparisons, "comparison")
    return f"{count} at a two-sided level of {design.level:.2g}"


def _spread_lines(pilot: Pilot) -> Iterator[RenderableType]:
    """Yield the spread, what it is from, and in what that was another sweep."""
    if pilot.spread is None:
        text = "No earlier run says how far differences spread, so effects are in standard "
        text += f"deviations of the paired differences. {pilot.advice}"
        yield line(text, "yellow")
        return
    known = pilot.spread
    text = f"spread of a paired difference {known.value:.3g} {_around(known.interval)} "
    text += f"(95 %, {plural(known.freedom, 'degree')} of freedom), of the {pilot.gate}"
    yield line(text)
    table = grid(["from", "condition", "pairs", "spread"], right=(2, 3))
    run = ""
    for row in pilot.rows:
        own = "-" if row.spread is None else f"{row.spread:.3g}"
        table.add_row("" if row.run == run else row.run, row.condition, str(row.pairs), own)
        run = row.run
    yield indent(table)
    if pilot.differs is None:
        yield line("A table does not say with which config: see that it is this one.", "yellow")
    elif pilot.differs:
        keys = ", ".join(pilot.differs[:_SOME_KEYS])
        more = len(pilot.differs) - _SOME_KEYS
        keys += f" and {plural(more, 'more key')}" if more > 0 else ""
        yield line(f"Its control differs from the planned one in {keys}.", "yellow")


def _shown_table(plan: PowerPlan) -> RenderableType:
    is_known = plan.pilot.spread is not None
    headers = ["seeds", "smallest difference", "in standard deviations"]
    table = grid(headers if is_known else [headers[0], headers[2]], right=(0,))
    rows = [(one, "") for one in plan.others]
    if plan.planned is not None:
        rows.append((plan.planned, " (planned)"))
    for one, mark in sorted(rows, key=lambda row: row[0].seeds):
        seeds = f"{one.seeds}" if plan.design.until is None else f"at most {one.seeds}"
        cells = [f"{seeds}{mark}", *([_effect(one)] if is_known else []), f"{one.size:.2f}"]
        table.add_row(*cells, style="bold" if mark else "")
    return table


def _effect(shown: Shown) -> str:
    assert shown.effect is not None
    assert shown.interval is not None
    return f"{shown.effect:.3g} {_around(shown.interval)}"


def _around(interval: Interval) -> str:
    return f"[{interval.low:.3g}, {interval.high:.3g}]"


def _sentences(plan: PowerPlan) -> Iterator[str]:
    if plan.planned is None:
        yield f"{plural(plan.design.seeds, 'planned seed')}: no claim can be made."
    if plan.needed is not None:
        yield _needed(plan.needed, plan.design)
    for true, ends in plan.expected.items():
        share = f"different {ends.different:.0%}, practically equal {ends.equal:.0%}"
        after = f"after {ends.seeds:.1f} seeds on average"
        yield f"If the true difference is {true:g}: {share}, {after}."
    if plan.needed is None and plan.pilot.spread is not None:
        yield "Seeds for a difference of interest: --effect."


def _needed(needed: Needed, design: Design) -> str:
    most = "a maximum of " if design.until is not None else ""
    text = f"A difference of {needed.effect:g} needs {most}{_seeds(needed.seeds)} seeds"
    if needed.fewest == needed.most:
        return f"{text}."
    return f"{text} ({_seeds(needed.fewest)} to {_seeds(needed.most)}, as the spread is known)."


def _seeds(count: int | None) -> str:
    return "more than 100" if count is None else quantity(count)
