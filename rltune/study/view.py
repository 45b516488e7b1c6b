"""Where a study stands, as text and as data."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType

from rltune.report.markdown import cut, visible
from rltune.report.render import duration, finding, grid, indent, line, verbatim
from rltune.report.render_lineage import calibration_view
from rltune.store.service_usage import money
from rltune.study.across import Repeated, findings_across, repeated
from rltune.study.load import Study
from rltune.study.predictions import predictions_of
from rltune.study.queue import Limits, Used
from rltune.study.state import Standing

_WHY = 160  # characters of a reason


def study_view(study: Study, found: Sequence[Standing], total: Used) -> RenderableType:
    """Return where a study stands: a row for each sweep, and what was promoted into it."""
    table = grid(("sweep", "run folder", "needs", "trials", "finished"), right=(3, 4))
    for one in found:
        finished = sum(status.is_finished for status in one.statuses.values())
        name = one.run.path.name if one.is_settled else f"waits for {one.sweep.source}"
        needs = ", ".join(one.sweep.needs) or "-"
        table.add_row(one.sweep.name, name, needs, str(len(one.statuses)), str(finished))
    promoted = [item for one in found for item in promoted_view(one, with_name=True)]
    across = [
        *(verbatim(repeated_text(one)) for one in repeated(found)),
        *(finding(item) for item in findings_across(study, found)),
    ]
    return Group(
        line(f"{study.spec.name}: {study.spec.question}", "bold"),
        line(),
        table,
        line(),
        *promoted,
        *across,
        line(_spent(study.limits, total)),
    )


def _spent(limits: Limits, total: Used) -> str:
    """Return what a study has used of its limits."""
    time_of = f" of {duration(limits.seconds)}" if limits.seconds is not None else ""
    tokens_of = f" of {limits.tokens:,}" if limits.tokens is not None else ""
    spent = f"Used: {duration(total.seconds)}{time_of}, {total.tokens:,}{tokens_of} tokens"
    if total.paid or limits.amount is not None:
        most = limits.amount
        money_of = f" of {money({limits.currency: most})}" if most is not None else ""
        spent += f", {money(total.paid) or 0}{money_of}"
    return spent


def repeated_text(one: Repeated) -> str:
    """Return which trials a sweep trains although another one does, and why it does."""
    seeds = ", ".join(map(str, one.seeds))
    return (
        f"{one.sweep}: {one.condition} is {one.first_condition} of {one.first} (seeds {seeds}). "
        f"Both sweeps train {'them' if len(one.seeds) > 1 else 'it'}: a control has the code and "
        "the machine of the trials that are compared with it."
    )


def promoted_view(one: Standing, *, with_name: bool = False) -> list[RenderableType]:
    """Return what was promoted into a sweep: the decision, then each key that differs."""
    if one.promotion is None:
        return []
    head = f"{one.sweep.name}: " if with_name else ""
    items: list[RenderableType] = [verbatim(f"{head}{one.promotion.sentence}")]
    for key, (was, now) in one.diff.items():
        items.append(indent(verbatim(f"{key}: {was!r} -> {now!r}")))
    if not one.diff:
        items.append(indent(line("nothing changes in this sweep's file")))
    return items


def study_json(
    study: Study, found: Sequence[Standing], total: Used, records: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return where a study stands, and what was proposed, as data."""
    return {
        "study": study.spec.name,
        "question": study.spec.question,
        "used": total,
        "limits": study.limits,
        "sweeps": [
            {
                "name": one.sweep.name,
                "file": str(study.originals[one.sweep.name].path),
                "run": str(one.run.path) if one.is_settled else None,
                "needs": list(one.sweep.needs),
                "is_finished": one.is_finished,
                "trials": dict(one.counts),
                "promotion": one.promotion,
                "diff": {key: list(pair) for key, pair in one.diff.items()},
            }
            for one in found
        ],
        "findings": list(findings_across(study, found)),
        "repeated": list(repeated(found)),
        "proposals": list(records),
        "predictions": predictions_of(found, records),
    }


def proposals_view(
    found: Sequence[Standing], records: Sequence[Mapping[str, Any]]
) -> list[RenderableType]:
    """Return every proposal with the first reason against it, and how good predictions were."""
    if not records:
        return []
    table = grid(("proposal", "try", "outcome", "question, or what is wrong"), right=(1,))
    for one in records:
        why = one["problems"][0] if one["problems"] else one.get("question", "")
        table.add_row(one["name"], str(one["try"]), one["outcome"], visible(cut(why, _WHY)))
    parts: list[RenderableType] = [line(), line("Proposals", "bold"), indent(table)]
    predictions = predictions_of(found, records)
    if predictions.predictions or predictions.waiting:
        told = calibration_view(predictions, name="condition", rival="the control")
        parts += [line(), line("Predictions of the proposer", "bold"), indent(told)]
    return parts
