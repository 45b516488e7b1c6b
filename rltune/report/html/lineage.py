"""The lineage section: the ancestors of the best trial, and what was tried."""

from collections.abc import Sequence
from pathlib import Path

from rltune.lineage.query import best, chain, recent
from rltune.lineage.read import ReadResult
from rltune.lineage.row import LineageRow
from rltune.report.html.markup import Html, details, el, join, table
from rltune.report.html.scale import rounded
from rltune.report.markdown import cut
from rltune.report.render import plural

MOST_ROWS = 60
"""Newest rows of the table; older ones are counted."""

MOST_LINKS = 12
"""Rows of the chain: the root, and the last ones before the best."""

_LONGEST = 300  # characters of a hypothesis or a note


def lineage_section(read: ReadResult | None, *, mode: str, path: Path) -> Html:
    """Return the section on lineage.

    Args:
        read: The rows of results.tsv; None without one.
        mode: `max` or `min`: what is better.
        path: Of the table, to name it.

    """
    rows = read.rows if read is not None else ()
    parts = [el("h2", "Where does the best trial come from?")]
    if rows:
        parts += [*_chain(rows, mode), _table(rows)]
    else:
        parts.append(el("p", f"No lineage yet: {path.name} has no rows."))
    if read is not None and read.problems:
        parts.append(
            el(
                "p",
                f"Unreadable lines: {len(read.problems)}; `rltune lineage repair` lists them.",
                class_="warn-text",
            )
        )
    return el("section", *parts, id="lineage", aria_label="Lineage")


def _chain(rows: Sequence[LineageRow], mode: str) -> list[Html]:
    top = best(rows, mode)
    if top.row is None:
        return [el("p", "No kept row has a metric yet.")]
    found = chain(rows, top.row.exp_id)
    shown = list(found.rows)
    left = len(shown) - MOST_LINKS
    links = [_link(row, is_best=row is found.rows[-1]) for row in shown]
    if left > 0:
        between = el("li", f"{plural(left, 'row')} between not shown.", class_="soft")
        links = [links[0], between, *links[-(MOST_LINKS - 1) :]]
    said = []
    if top.ties:
        names = ", ".join(row.exp_id for row in top.ties[:5])
        more = f" and {len(top.ties) - 5} more" if len(top.ties) > 5 else ""
        said.append(el("p", f"Tied with the best: {names}{more}."))
    if found.skipped:
        said.append(el("p", f"{plural(len(found.skipped), 'ancestor')} not kept, so left out."))
    if found.missing:
        said.append(
            el(
                "p",
                f"The chain is broken: parent {found.missing} is not in the table.",
                class_="warn-text",
            )
        )
    if found.cycle:
        said.append(
            el(
                "p",
                f"The chain is circular: {' → '.join(found.cycle[:8])}.",
                class_="warn-text",
            )
        )
    return [el("ol", *links, class_="chain"), *said]


def _link(row: LineageRow, *, is_best: bool) -> Html:
    against = f" ({row.delta_vs_best or 0.0:+.3f} on the best then)"
    delta = "" if row.delta_vs_best is None else against
    return el(
        "li",
        el("code", row.exp_id),
        el("span", f" {row.status.value} ", class_="tag"),
        el("b", rounded(row.core_metric)),
        delta,
        el("span", " best", class_="state ok") if is_best else None,
        el("br"),
        el("span", cut(row.hypothesis, _LONGEST) or "no hypothesis"),
        join(el("br"), el("span", cut(row.notes, _LONGEST), class_="soft")) if row.notes else None,
    )


def _table(rows: Sequence[LineageRow]) -> Html:
    cells = [
        [
            el("code", row.exp_id),
            row.status.value,
            rounded(row.core_metric),
            "–" if row.delta_vs_best is None else f"{row.delta_vs_best:+.3f}",
            cut(row.expected_delta, 40) or "–",
            cut(row.hypothesis, _LONGEST) or "–",
            cut(row.notes, _LONGEST) or "–",
        ]
        for row in recent(rows, MOST_ROWS)
    ]
    left = len(rows) - len(cells)
    older = f"; {plural(left, 'older row')} not shown" if left > 0 else ""
    caption = f"What was tried, newest first{older}"
    headers = ["id", "status", "metric", "vs best then", "expected", "hypothesis", "notes"]
    return details(
        f"All {plural(len(rows), 'row')} of results.tsv" if left <= 0 else caption,
        table(caption, headers, cells, numeric=(2, 3)),
    )
