"""LEADERBOARD.md and KNOWLEDGE.md: what a table of everything tried says to whoever tries next.

A function of the rows alone: the same table gives the same bytes. Every length is bounded, and
what was cut is said.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rltune.lineage.calibration import Calibration, calibration_lines
from rltune.lineage.noise import is_noise, is_progress
from rltune.lineage.query import (
    COMPARED,
    ELIGIBLE,
    Best,
    best,
    chain,
    children,
    recent,
    sign_of,
)
from rltune.lineage.read import Metric
from rltune.lineage.row import LineageRow, is_foreign
from rltune.report.markdown import code_id, inline, number, table, within_budget
from rltune.report.render import plural
from rltune.types import RowStatus

HIDDEN = frozenset({RowStatus.HARNESS_ABORT})
"""Bookkeeping kills: they say nothing about a hypothesis and are counted, not shown."""

_TOP = 20
_RECENT = 30
_FULL = 10
_REASONS = 5  # of each class of failure
_STALE = 5  # finished rows without progress that make a table look saturated
_SHORT, _REASON, _LONG = 100, 300, 2500  # characters of a text in a table, a list, in full
# Bytes of a section.
_CHAIN, _CHILDREN, _TABLE, _FULL_TEXT, _FAILED = 6000, 3000, 8000, 20000, 6000


_LEGEND = (
    "Only kept and baseline rows are ranked. `metric` is on held-out tasks, `pool` on training",
    "tasks, which never decide. `=` ties with the best; `≈` marks a difference from the best at",
    "record time that luck of the held-out tasks explains (its 95 % interval holds 0). That is no",
    "verdict about a knob: `rltune compare` gives the verdict of a sweep, over its seeds.",
)


class LineageReport(NamedTuple):
    """Both files as text."""

    leaderboard: str
    knowledge: str


@dataclass(frozen=True, slots=True)
class _Lineage:
    """A table and what was asked of it once."""

    rows: tuple[LineageRow, ...]
    metric: Metric
    top: Best
    problems: int

    @property
    def shown(self) -> list[LineageRow]:
        return [row for row in self.rows if row.status not in HIDDEN]


def render_lineage_report(
    rows: Sequence[LineageRow], metric: Metric, calibration: Calibration, *, problems: int = 0
) -> LineageReport:
    """Return both files.

    `problems` counts the lines of the table that are no rows.
    """
    lineage = _Lineage(tuple(rows), metric, best(rows, metric.mode), problems)
    return LineageReport(_leaderboard(lineage), _knowledge(lineage, calibration))


def _leaderboard(lineage: _Lineage) -> str:
    kept = [row for row in lineage.rows if row.status in ELIGIBLE]
    scored = [row for row in kept if row.core_metric is not None]
    sign = sign_of(lineage.metric.mode)
    scored.sort(key=lambda row: -sign * (row.core_metric or 0.0))  # stable: earlier first
    cells = [
        [
            "=" if row in lineage.top.ties else str(rank),
            code_id(row.exp_id),
            row.status.value,
            number(row.core_metric),
            _delta(row),
            number(row.pool_metric),
            inline(row.expected_delta, 40),
            inline(row.hypothesis, _SHORT),
        ]
        for rank, row in enumerate(scored[:_TOP], start=1)
    ]
    headers = ["#", "exp_id", "status", "metric", "vs best then", "pool", "expected", "hypothesis"]
    lines = ["# Leaderboard", "", *_head(lineage), ""]
    lines += table(headers, cells) if cells else ["No kept row has a metric yet."]
    left, unscored = len(scored) - len(cells), len(kept) - len(scored)
    if left:
        lines += ["", f"{plural(left, 'more kept row')} not shown."]
    if unscored:
        lines += ["", f"{plural(unscored, 'kept row')} without a metric, so without a rank."]
    lines += ["", *_LEGEND]
    return "\n".join(lines) + "\n"


def _head(lineage: _Lineage) -> list[str]:
    way = "more is better" if lineage.metric.mode == "max" else "less is better"
    lines = [f"{inline(lineage.metric.name, _SHORT)}, {way}. {plural(len(lineage.rows), 'row')}."]
    top = lineage.top
    if top.row is not None:
        words = f"Best: {code_id(top.row.exp_id)} with {number(top.row.core_metric)}"
        ties = [code_id(row.exp_id) for row in top.ties]
        more = f" and {len(ties) - 5} more" if len(ties) > 5 else ""
        lines.append(f"{words}, tied with {', '.join(ties[:5])}{more}." if ties else f"{words}.")
    if lineage.problems:
        lines.append(f"Unreadable lines: {lineage.problems}; `rltune lineage repair` lists them.")
    return lines


def _knowledge(lineage: _Lineage, calibration: Calibration) -> str:
    sections = [
        ("From the root to the best", _lineage_lines(lineage)),
        ("Children of the best", _children_lines(lineage)),
        ("Is it saturated?", _saturation_lines(lineage)),
        ("Predictions", _prediction_lines(calibration)),
        (f"Recent activity (last {_RECENT}, newest first)", _recent_lines(lineage)),
        (f"The last {_FULL} in full", _full_lines(lineage)),
        ("How trials failed", _failure_lines(lineage)),
    ]
    lines = ["# Knowledge", "", *_head(lineage)]
    for title, body in sections:
        if body:
            lines += ["", f"## {title}", "", *body]
    return "\n".join(lines) + "\n"


def _lineage_lines(lineage: _Lineage) -> list[str]:
    if lineage.top.row is None:
        return ["No kept row has a metric yet."]
    got = chain(lineage.rows, lineage.top.row.exp_id)
    items = [f"{'  ' * min(i, 8)}- {_item(row)}" for i, row in enumerate(got.rows)]
    items[-1] += " **← BEST**"
    if sum(map(_bytes, items)) > _CHAIN and len(items) > 2:  # root and best matter most
        size, tail = _bytes(items[0]), [items[-1]]
        for item in reversed(items[1:-1]):
            size += _bytes(item)
            if size > _CHAIN:
                break
            tail.insert(0, item)
        items = [items[0], f"  - {len(items) - 1 - len(tail)} rows in between not shown", *tail]
    if got.skipped:
        names = ", ".join(code_id(row.exp_id) for row in got.skipped[:5])
        items += [
            "",
            f"{plural(len(got.skipped), 'ancestor')} left out because not kept: {names}.",
        ]
    if is_foreign(got.missing):
        items += ["", f"The root grew from {code_id(got.missing)}, a row of another run."]
    elif got.missing:
        items += ["", f"The chain is broken: parent {code_id(got.missing)} is not in the table."]
    if got.cycle:
        shown = " → ".join(code_id(name) for name in got.cycle[:8])
        items += ["", f"The chain is circular: {shown}."]
    return items


def _bytes(text: str) -> int:
    return len(text.encode())


def _delta(row: LineageRow) -> str:
    return number(row.delta_vs_best, is_signed=True) + (" ≈" if is_noise(row) else "")


def _item(row: LineageRow) -> str:
    delta = "" if row.delta_vs_best is None else f" ({_delta(row)})"
    return (
        f"{code_id(row.exp_id)} {row.status.value} {number(row.core_metric)}{delta}: "
        f"{inline(row.hypothesis, _SHORT) or 'no hypothesis'}"
    )


def _children_lines(lineage: _Lineage) -> list[str]:
    if lineage.top.row is None:
        return []
    born = [
        row for row in children(lineage.rows, lineage.top.row.exp_id) if row.status not in HIDDEN
    ]
    if not born:
        return ["None yet."]
    return within_budget([f"- {_item(row)}" for row in born], _CHILDREN, "children")


def _saturation_lines(lineage: _Lineage) -> list[str]:
    done = [row for row in lineage.rows if row.status in COMPARED]
    last = done[-_STALE:]
    if len(last) < _STALE or any(is_progress(row, lineage.metric.mode) for row in last):
        return []
    return [
        f"The last {_STALE} finished rows brought no improvement beyond the noise. Another kind of "
        "idea, or more held-out tasks, will say more than another small change."
    ]


def _prediction_lines(calibration: Calibration) -> list[str]:
    judged = [p for p in calibration.predictions if p.observed is not None]
    beside = [
        f"- {code_id(p.exp_id)}: {inline(p.text, 40)} predicted, "
        f"{number(p.observed, is_signed=True)} observed against its parent"
        for p in recent(judged, _FULL)
    ]
    return [*(f"- {line}" for line in calibration_lines(calibration)), *beside]


def _recent_lines(lineage: _Lineage) -> list[str]:
    rows = [
        [
            code_id(row.exp_id),
            row.status.value,
            number(row.core_metric),
            _delta(row),
            inline(row.expected_delta, 40),
            inline(row.hypothesis, _SHORT),
        ]
        for row in recent(lineage.shown, _RECENT)
    ]
    hidden = len(lineage.rows) - len(lineage.shown)
    note = f"Hidden (harness_abort, no evidence either way): {plural(hidden, 'row')}."
    if not rows:
        return [note] if hidden else ["Nothing yet."]
    headers = ["exp_id", "status", "metric", "vs best then", "expected", "hypothesis"]
    head, rule, *body = table(headers, rows)
    return [head, rule, *within_budget(body, _TABLE, "rows"), *(["", note] if hidden else [])]


def _full_lines(lineage: _Lineage) -> list[str]:
    items = []
    for row in recent(lineage.shown, _FULL):
        lines = [f"- {code_id(row.exp_id)} {row.status.value} {number(row.core_metric)}"]
        limits = {"hypothesis": _LONG, "expected_delta": _REASON, "notes": _LONG}
        for name, limit in limits.items():
            if text := inline(getattr(row, name), limit):
                lines.append(f"  - {name.replace('_', ' ')}: {text}")
        items.append("\n".join(lines))
    return within_budget(items, _FULL_TEXT, "rows")


def _failure_lines(lineage: _Lineage) -> list[str]:
    failed = [row for row in lineage.shown if row.status not in COMPARED]
    counts = Counter(row.status for row in failed)
    lines = []
    for status in RowStatus:
        if not counts[status]:
            continue
        lines.append(f"- **{status.value}**: {counts[status]}")
        mine = [row for row in failed if row.status is status]
        lines += [
            f"  - {code_id(row.exp_id)} {inline(row.hypothesis, _SHORT)}: "
            f"{inline(row.notes, _REASON) or 'no reason given'}"
            for row in recent(mine, _REASONS)
        ]
        if len(mine) > _REASONS:
            lines.append(f"  - {len(mine) - _REASONS} older not shown")
    return within_budget(lines, _FAILED, "lines")
