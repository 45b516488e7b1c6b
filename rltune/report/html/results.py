"""The results section: comparison with the control, curves, seeds, training, and the legend."""

from collections.abc import Iterator, Mapping, Sequence

from rltune.analysis.table_summary import verdicts_of
from rltune.analysis.verdict import Verdict
from rltune.report.figures.data_comparison import comparison_data
from rltune.report.figures.data_curves import curves_data
from rltune.report.figures.notes import (
    conditions_of,
    estimate_text,
    interval_text,
    label_of,
    seed_notes,
)
from rltune.report.figures.records import Comparison, Comparisons, LeftOut
from rltune.report.html.colours import ordered, swatch
from rltune.report.html.curves import curves_figure, training_figure, training_panels
from rltune.report.html.gather import Evidence
from rltune.report.html.markup import Child, Html, details, el, items, join, table
from rltune.report.html.seeds import Level, draw_strips, final_strips, paired_strips
from rltune.report.render import plural

MOST_ANSWERS = 6
"""Conditions that have a sentence each before their table."""

MOST_OPEN = 3
"""Measures of training that are seen at once; the others open."""

_TRAINING = "On training tasks, which decide nothing. Thick: mean over seeds. Thin: single seeds."


def legend(evidence: Evidence) -> Html:
    """Return the conditions as buttons that hide and show them in every figure."""
    buttons = [
        el(
            "button",
            swatch(index),
            f" {one.short}",
            el("span", " control", class_="tag") if one.is_control else None,
            type="button",
            data_toggle=index,
            aria_pressed="true",
        )
        for index, one in enumerate(ordered(conditions_of(evidence.tables.trials)))
    ]
    axis = evidence.folder.specs[0].axis_key
    return el(
        "div",
        el("span", axis, class_="soft"),
        *buttons,
        class_="legend",
        role="group",
        aria_label="Conditions, shown or hidden in all figures",
    )


def results_section(evidence: Evidence, places: Mapping[str, str]) -> Html:
    """Return what came out: the comparison to the control, curves, seeds.

    Args:
        evidence: Of the sweep.
        places: Trial id -> id of its row on the page.

    """
    compared, said = comparison_data(evidence.tables), verdicts_of(evidence.tables.trials)
    parts: list[Html] = [el("h2", "What came out?"), *_answers(compared, said)]
    parts += [legend(evidence), el("div", *_figures(evidence, compared, places), class_="figures")]
    panels = training_panels(evidence.tables)
    if panels:
        labels = [one.label for one in ordered(conditions_of(evidence.tables.trials))]
        drawn = [training_figure(panel, labels) for panel in panels]
        parts += [el("h3", "What training looked like"), el("p", _TRAINING, class_="soft small")]
        parts.append(el("div", *drawn[:MOST_OPEN], class_="figures small"))
        if more := drawn[MOST_OPEN:]:
            summary = f"{plural(len(more), 'measure')} more of training"
            parts.append(details(summary, el("div", *more, class_="figures small")))
    return el("section", *parts, id="results", aria_label="Results")


def _answers(compared: Comparisons | LeftOut, said: Sequence[Verdict]) -> Iterator[Html]:
    """Yield what may be said of each condition, and the table behind it."""
    if isinstance(compared, LeftOut):
        yield el("p", f"No condition is compared: {compared.reason}.")
        yield items((_answer(one.condition, one.sentence) for one in said), class_="answers")
        return
    for note in seed_notes([len(row.pairs) for row in compared.rows if row.pairs]):
        yield el("p", note, class_="banner warn")
    if len(compared.rows) <= MOST_ANSWERS:
        yield items((_answer(one.condition, one.sentence) for one in said), class_="answers")
    rows = [_answer_row(row) for row in compared.rows]
    headers = [
        "condition",
        "seeds",
        "difference",
        "95 % interval",
        "p, unadjusted",
        "p, Holm",
        "verdict",
    ]
    caption = f"{compared.label} at the last gate, minus the control {compared.control}"
    yield table(caption, headers, rows, numeric=(1, 2, 3, 4, 5))


def _answer(condition: str, sentence: str) -> Html:
    return join(el("b", condition), f": {unbroken(sentence)}.")


def _answer_row(row: Comparison) -> list[Child]:
    return [
        row.condition,
        len(row.pairs),
        "–" if row.delta is None else f"{row.delta:+.3f}",
        "–" if row.low is None else f"[{row.low:+.3f}, {row.high:+.3f}]",
        _p(row.p),
        _p(row.p_holm),
        row.verdict,
    ]


def _p(value: float | None) -> str:
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def _figures(
    evidence: Evidence, compared: Comparisons | LeftOut, places: Mapping[str, str]
) -> Iterator[Html]:
    tables = evidence.tables
    labels = [one.label for one in ordered(conditions_of(tables.trials))]
    curves = curves_data(tables)
    if isinstance(curves, LeftOut):
        yield el("p", f"No learning curves: {curves.reason}.")
        return
    for panel in curves.panels:
        yield curves_figure(panel, labels, caption=unbroken(curves.head.caption))
    levels = [Level(one.name, one.value) for one in curves.panels[0].references]
    yield el("div", *_strips(evidence, compared, places, levels), class_="stack")


def _strips(
    evidence: Evidence,
    compared: Comparisons | LeftOut,
    places: Mapping[str, str],
    levels: Sequence[Level],
) -> Iterator[Html]:
    """Yield the seeds of each condition, alone and against their controls."""
    tables = evidence.tables
    strips = final_strips(tables)
    if any(strip.dots for strip in strips):
        name = f"{label_of(tables.trials[0].metric)} at the last gate"
        drawn = draw_strips(strips, tables, places, axis=name, levels=levels)
        words = " Marks: seeds, each leads to its trial."
        if any(strip.low is not None for strip in strips):
            words += " Bar: mean, with its 95\u00a0% t interval."
        yield el("figure", drawn, el("figcaption", el("b", "Where each seed ends."), words))
    if isinstance(compared, Comparisons):
        drawn = draw_strips(
            paired_strips(compared),
            tables,
            places,
            axis="difference to the control of the seed",
            levels=[Level("control", 0.0)],
            is_signed=True,
        )
        words = f"Marks: seeds. Bar: {estimate_text(compared.estimator)} of the differences"
        if any(row.low is not None for row in compared.rows):
            words += f", with its {interval_text(compared.method, compared.level)}"
        title = el("b", "Each seed against its control.")
        yield el("figure", drawn, el("figcaption", title, f" {unbroken(words)}."))


def unbroken(text: str) -> str:
    """Return a text whose numbers stay with their percent sign."""
    return text.replace(" %", "\u00a0%")
