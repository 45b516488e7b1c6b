"""The head of the page and its last section: what was asked, and what the page was made from."""

from collections.abc import Iterable
from typing import Any

from rltune.report.figures.notes import conditions_of, label_of
from rltune.report.html.gather import Evidence
from rltune.report.render import plural, quantity
from rltune.report.render_status import counts

MOST_TEXT = 20_000
"""Characters of the sweep file."""


def head_of(evidence: Evidence) -> dict[str, Any]:
    """Return what was asked, and of how much."""
    folder, plan = evidence.folder, evidence.plan
    conditions = (
        f"{one.short} (control)" if one.is_control else one.short
        for one in conditions_of(evidence.tables.trials)
    )
    better = "more is better" if folder.metric_mode == "max" else "less is better"
    return {
        "question": str(plan.get("question") or evidence.sweep.get("question") or ""),
        "axis": folder.specs[0].axis_key,
        "facts": [
            ("Task", str(folder.specs[0].config["env"]["kind"])),
            ("Conditions", ", ".join(conditions)),
            ("Seeds", ", ".join(map(str, sorted({spec.seed for spec in folder.specs})))),
            ("Decided by", f"{label_of(folder.metric_name)}, {better}"),
            ("Profile", str(plan.get("profile") or "not recorded")),
            ("Trials", counts(evidence.state.trials)),
        ],
    }


def source_of(evidence: Evidence) -> dict[str, Any]:
    """Return what the page was made from, and how its numbers are made again."""
    trials = evidence.tables.trials
    run = trials[0].run
    sweep = evidence.folder.run.sweep.read_text(encoding="utf-8", errors="replace")
    if len(sweep) > MOST_TEXT:
        sweep = f"{sweep[:MOST_TEXT]}\n… cut at {MOST_TEXT} characters"
    return {
        "facts": [
            ("Run folder", run),
            (
                "Made from",
                f"{plural(evidence.inputs, 'file')}, sha256 {evidence.inputs_sha256[:16]}",
            ),
            ("Code of the trials", _each(row.code_rev for row in trials)),
            ("Weights", _each(row.weights_sha256[:12] for row in trials)),
            ("Held-out tasks", _each(row.tasks_sha256[:12] for row in trials)),
            ("Device", _each(row.cpu_model or row.device for row in trials)),
            ("Sampled tokens", quantity(sum(row.tokens or 0.0 for row in trials))),
        ],
        "commands": "\n".join(
            f"rltune {name} runs/{run}" for name in ("report", "export", "audit")
        ),
        "sweep": sweep,
    }


def _each(values: Iterable[str]) -> str:
    known = sorted({value for value in values if value})
    more = f" and {len(known) - 4} more" if len(known) > 4 else ""
    return ", ".join(known[:4]) + more or "none"
