"""The end of a sweep as text: audit, closing table, paths."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType

from rltune.analysis.audit import Audit, AuditVerdict
from rltune.analysis.memory_use import MemoryUse
from rltune.analysis.summary import Bounds, Closing, ConditionRow
from rltune.comparability.consumption import MINI_BATCHES, NAMES, UPDATES, Consumption, where
from rltune.comparability.findings import RULES
from rltune.report.render import (
    estimate,
    finding,
    grid,
    indent,
    interval,
    line,
    plural,
    quantity,
    rate,
    rules_table,
    short_path,
    signed,
    size,
    verbatim,
)

WIDE = 112  # columns from which an interval fits beside its mean


def audit_view(audit: Audit) -> RenderableType:
    """Return the audit: what each rule found, what was consumed, the verdict."""
    findings = (*audit.report.errors, *audit.report.warnings)
    rules = rules_table(
        [name for name in RULES if name.startswith("A")], findings, bool(audit.started)
    )
    return Group(
        line("Audit of what really ran", "bold"),
        indent(rules),
        *(indent(finding(item)) for item in findings),
        *_consumed(audit.report.budget),
        *_memory(audit.memory),
        *(line(f"unreadable: {problem}", "yellow") for problem in audit.problems),
        audit_verdict(audit),
    )


def audit_verdict(audit: Audit) -> RenderableType:
    """Return the one sentence that the audit comes to."""
    count = f"{audit.finished} of {plural(audit.trials, 'trial')} finished"
    if not audit.started:
        return line(
            "Audit incomplete: no trial has started, so there is nothing to audit.", "yellow"
        )
    match audit.verdict:
        case AuditVerdict.FAILED:
            verdict = f"Audit FAILED ({count}): these trials do not prove a comparison."
            return line(verdict, "bold red")
        case AuditVerdict.CONFOUNDED:
            verdict = f"Audit: CONFOUNDED ({count}), nothing follows about the axis. Run anyway: "
            return line(f"{verdict}{audit.confounded}", "bold red")
        case AuditVerdict.INCOMPLETE:
            verdict = f"Audit incomplete ({count}): no error so far, and nothing to compare before "
            return line(f"{verdict}the control and another condition have finished.", "bold yellow")
    warned = len(audit.report.warnings)
    note = f", with {plural(warned, 'warning')}" if warned else ""
    return line(f"Audit passed ({count}){note}.", "bold green" if not warned else "bold yellow")


def _consumed(spent: Consumption) -> Iterator[RenderableType]:
    """Yield what each condition consumed, and below it how far that is from the control's."""
    rows = spent.rows
    is_told_apart = any(row.consumed.get(UPDATES) != row.consumed.get(MINI_BATCHES) for row in rows)
    hidden = set() if is_told_apart else {MINI_BATCHES}  # the policy moved in every one of them
    names = [key for key in NAMES if any(key in row.consumed for row in rows) and key not in hidden]
    if not names:
        return
    yield line("Consumed to the last step, mean over seeds, and against the control", "bold")
    headers = ["condition", "trials", *(NAMES[key] for key in names)]
    table = grid(headers, right=range(1, len(headers)))
    for row in rows:
        cells = (quantity(row.consumed[key]) if key in row.consumed else "-" for key in names)
        table.add_row(row.condition, str(row.trials), *cells)
        for pairing in (*spent.common, *spent.ends):
            if pairing.condition == row.condition:
                differences = pairing.differences
                gaps = (f"{differences[key]:+.1%}" if key in differences else "-" for key in names)
                table.add_row(f"  {where(pairing)}", str(pairing.seeds), *gaps, style="dim")
    yield indent(table)


def _memory(uses: Sequence[MemoryUse]) -> Iterator[RenderableType]:
    """Yield the most that a trial of each condition held, beside its plan."""
    if not uses:
        return
    yield line("Peak memory of a trial, by condition", "bold")
    table = grid(["condition", "of", "planned", "used", "used of planned"], right=(2, 3, 4))
    for use in uses:
        planned = "-" if use.planned is None else size(use.planned)
        share = "-" if use.share is None else f"{use.share:.0%}"
        table.add_row(use.condition, use.where, planned, size(use.used), share)
    yield indent(table)


def closing_view(closing: Closing, *, width: int) -> RenderableType:
    """Return the closing table, its bounds, what its columns mean, and what may be said."""
    joint, gap = (" ", 2) if width >= WIDE else ("\n", 1)
    headers = (
        "condition", "seeds", "start", "best\ngate", "final", "gain", "against\ncontrol"
    )  # fmt: skip
    table = grid(headers, right=(1, 2, 3), gap=gap)
    for row in closing.rows:
        table.add_row(*_closing_cells(row, joint), style="bold" if row.is_control else "")
    notes = [line(text, "dim") for text in _notes(closing.rows)]
    return Group(
        line(f"{closing.metric_name}, mean over seeds [95 % t interval]", "bold"),
        indent(table),
        *(indent(line(text)) for text in _bound_lines(closing.rows)),
        *map(indent, notes),
        *_looks(closing.rows),
        *([indent(line(closing.judged))] if closing.judged else []),
        *([indent(line(closing.scored, "yellow"))] if closing.scored else []),
        *([indent(line(closing.service, "dim"))] if closing.service else []),
        *(line(text, "yellow") for text in closing.stamps),
        *(line(text, "yellow") for text in closing.warnings),
        *(line(text, "bold") for text in closing.verdicts),
        *([line(closing.power)] if closing.power else []),
    )


def _looks(rows: Sequence[ConditionRow]) -> Iterator[RenderableType]:
    """Yield every look of seeds until decided, with its boundary; nothing for a list of seeds."""
    looked = [row for row in rows if row.verdict is not None and row.verdict.looks]
    if not looked:
        return
    yield line("Looks: intervals and p together err at most 5 %, over all looks and conditions")
    table = grid(
        ["condition", "seeds", "difference", "interval", "p", "boundary", "decision"],
        right=(1, 2, 4, 5),
    )
    for row in looked:
        for look in row.verdict.looks if row.verdict else ():
            p, boundary = (f"{value:.2g}" for value in (look.p, look.boundary))
            around = interval(look.interval, is_signed=True)
            table.add_row(
                row.condition, str(look.n), signed(look.mean), around, p, boundary, look.decision
            )
    yield indent(table)


def _closing_cells(row: ConditionRow, joint: str) -> list[str]:
    final = estimate(row.final, joint=joint)
    if row.final_of_one is not None:
        final = f"{rate(row.final.mean)}{joint}{interval(row.final_of_one)}*"
    difference = "control"
    if row.difference is not None:
        difference = estimate(row.difference, joint=joint, is_signed=True)
    return [
        row.condition,
        f"{row.finished}/{row.planned}",
        rate(row.base.mean),
        rate(row.selected.mean),
        final,
        estimate(row.gain, joint=joint, is_signed=True),
        difference,
    ]


def _bound_lines(rows: Sequence[ConditionRow]) -> Iterator[str]:
    """Yield the floor and the ceiling; per condition when the axis changes the tasks."""
    by_bounds: dict[Bounds, list[str]] = {}
    for row in rows:
        if row.bounds is not None:
            by_bounds.setdefault(row.bounds, []).append(row.condition)
    for bounds, conditions in by_bounds.items():
        whose = f"{', '.join(conditions)}: " if len(by_bounds) > 1 else ""
        yield f"{whose}{_levels(bounds)}"
        yield from _below_floor(rows, bounds)


_HOW = {"exact": "exact, ", "measured": "floor measured, "}


def _levels(bounds: Bounds) -> str:
    """Return floor and ceiling; the start stands in for a floor that is unknown."""
    floor = "floor unknown: compare with start"
    if bounds.floor is not None:
        floor = f"random floor {rate(bounds.floor)}"
    if bounds.interval is not None:
        floor += f" [{rate(bounds.interval.low)}, {rate(bounds.interval.high)}]"
    ceiling = "ceiling unknown"
    if bounds.ceiling is not None:
        ceiling = f"optimal ceiling {rate(bounds.ceiling)}"
    how = _HOW.get(bounds.floor_kind, "")
    proof = "" if bounds.is_proved else ", none proved solvable"
    return f"{floor}, {ceiling} ({how}{bounds.tasks} held-out tasks{proof})"


def _below_floor(rows: Sequence[ConditionRow], bounds: Bounds) -> Iterator[str]:
    for row in rows:
        if row.bounds == bounds and bounds.floor is not None and row.final.mean <= bounds.floor:
            yield f"{row.condition} ends at or below random play."


def _notes(rows: Sequence[ConditionRow]) -> Iterator[str]:
    yield "best gate: chosen on these tasks, so optimistic. final: last gate."
    yield (
        "gain: final - start. against control: final - final of the control of the same seed, "
        "where both ended at the same step."
    )
    if any(row.verdict is not None and row.verdict.looks for row in rows):
        yield "The intervals against the control are those of the last looks."
    if any(row.final_of_one is not None for row in rows):
        yield "* one seed: Wilson interval over the held-out tasks, not over seeds."


def paths_view(paths: Mapping[str, str]) -> RenderableType:
    """Return what was written where, each path whole."""
    widest = max(map(len, paths))
    return Group(
        line("Written", "bold"),
        *(verbatim(f"  {name:<{widest}}  {short_path(path)}") for name, path in paths.items()),
    )
