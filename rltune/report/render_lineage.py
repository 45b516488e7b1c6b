"""The lineage as text for a terminal: all rows, the best, a chain, what was predicted."""

from collections.abc import Sequence

from rich.console import Group, RenderableType

from rltune.lineage.calibration import Calibration, calibration_lines
from rltune.lineage.query import Best, Chain, best
from rltune.lineage.read import Metric
from rltune.lineage.row import LineageRow, is_foreign
from rltune.report.markdown import visible
from rltune.report.render import grid, indent, line, rate, signed


def lineage_view(
    rows: Sequence[LineageRow], metric: Metric, calibration: Calibration
) -> RenderableType:
    """Return the lineage table: what was tried, how it ended, the best, the predictions."""
    if not rows:
        return line("The lineage has no rows yet.")
    top = best(rows, metric.mode)
    predictions = (
        [line(f"Predictions: {'; '.join(told)}.")]
        if (told := calibration_lines(calibration))
        else []
    )
    return Group(rows_view(rows, best_row=top.row), line(), best_view(top, metric), *predictions)


def rows_view(rows: Sequence[LineageRow], *, best_row: LineageRow | None = None) -> RenderableType:
    """Return a line per row, then their notes: a column of them would be a few letters wide.

    The column of predictions is there only where there is one.
    """
    is_told = any(row.expected_delta for row in rows)
    expected = ("expected",) if is_told else ()
    table = grid(
        ("exp_id", "status", "metric", *expected, "vs best", "step"),
        right=(2, 4, 5) if is_told else (2, 3, 4),
        whole=(0,),
        gap=1,
    )
    for row in rows:
        table.add_row(
            visible(row.exp_id),
            row.status.value,
            rate(row.core_metric),
            *([visible(row.expected_delta)] if is_told else []),
            "" if row.delta_vs_best is None else signed(row.delta_vs_best),
            "" if row.best_step is None else str(row.best_step),
            style="bold" if row is best_row else "",
        )
    noted = [row for row in rows if row.notes]
    parts: list[RenderableType] = [table]
    if noted:
        parts += [line(), line("Notes", "bold")]
    parts += [indent(line(visible(f"{row.exp_id}: {row.notes}"))) for row in noted]
    return Group(*parts)


def best_view(top: Best, metric: Metric) -> RenderableType:
    """Return the best row and its ties in a sentence."""
    if top.row is None:
        return line("No kept row has a metric yet.", "bold")
    ties = f", tied with {', '.join(row.exp_id for row in top.ties)}" if top.ties else ""
    sentence = f"Best: {top.row.exp_id} with {metric.name} {rate(top.row.core_metric)}{ties}."
    return line(visible(sentence), "bold")


def chain_view(ancestors: Chain) -> RenderableType:
    """Return the ancestors of a row from the root on, and what is wrong with them."""
    problems = []
    if ancestors.skipped:
        names = ", ".join(f"{row.exp_id} ({row.status})" for row in ancestors.skipped)
        problems.append(line(visible(f"Left out because not kept: {names}.")))
    if is_foreign(ancestors.missing):
        beyond = f"The root grew from {ancestors.missing}, whose table is not beside this one."
        problems.append(line(visible(beyond)))
    elif ancestors.missing:
        broken = f"The chain is broken: parent {ancestors.missing} is not in the table."
        problems.append(line(visible(broken), "bold red"))
    if ancestors.cycle:
        problems.append(
            line(visible(f"The chain is circular: {' -> '.join(ancestors.cycle)}."), "bold red")
        )
    return Group(rows_view(ancestors.rows), *problems)


def calibration_view(
    calibration: Calibration, *, name: str = "exp_id", rival: str = "the parent's metric"
) -> RenderableType:
    """Return every prediction beside what came, and the summary.

    Args:
        calibration: The predictions and their outcomes.
        name: Of the column that says what was predicted.
        rival: What each outcome was compared with.

    """
    told = calibration_lines(calibration, rival=rival)
    if not told:
        return line("Nothing was predicted; write `expect:` under the axis of a sweep file.")
    table = grid(
        (name, "predicted", "expected", "observed", "95 % interval", "sign"),
        right=(2, 3),
        whole=(0,),
        gap=1,
    )
    signs = {True: "right", False: "wrong", None: "-"}
    for p in calibration.predictions:
        span = f"[{p.interval.low:+.3f}, {p.interval.high:+.3f}]" if p.interval else ""
        table.add_row(
            visible(p.exp_id),
            visible(p.text),
            "-" if p.expected is None else signed(p.expected),
            "-" if p.observed is None else signed(p.observed),
            span,
            signs[p.has_right_sign],
        )
    return Group(table, *(line(f"{sentence}.") for sentence in told))
