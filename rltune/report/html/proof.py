"""The comparability section: what differs, what is held, what each rule found."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rltune.analysis.audit import Audit, AuditVerdict
from rltune.comparability.findings import RULES, Severity
from rltune.report.html.gather import Evidence
from rltune.report.html.table import Cell, Table, marked
from rltune.report.render import plural
from rltune.report.render_check import held_text
from rltune.spec.identity import flatten
from rltune.spec.problems import show
from rltune.spec.shortforms import config_tree
from rltune.store.files import to_json

_VERDICTS = {
    AuditVerdict.PASSED: ("ok", "Comparable: what ran differs in the axis alone."),
    AuditVerdict.INCOMPLETE: ("warn", "Not finished: there is no comparison to judge yet."),
    AuditVerdict.CONFOUNDED: ("bad", "CONFOUNDED: more than the axis differs, so nothing follows."),
    AuditVerdict.FAILED: ("bad", "AUDIT FAILED: this page does not prove a comparison."),
}

Found = Mapping[str, Any]  # a finding, as comparability.json holds it


def verdict_of(audit: Audit) -> dict[str, str]:
    """Return what the page may claim, in one line."""
    kind, text = _VERDICTS[audit.verdict]
    if audit.verdict is AuditVerdict.PASSED and audit.finished < audit.trials:
        kind, text = "warn", "INCOMPLETE. What ran is comparable."
    done = f"{audit.finished} of {plural(audit.trials, 'trial')} finished."
    return {"kind": kind, "text": text, "done": done, "confounded": audit.confounded}


def proof_of(evidence: Evidence) -> dict[str, Any]:
    """Return the proof: the diff table, the held knobs, the rules before and after the run."""
    proof, sweep = evidence.proof, evidence.sweep
    findings = [*proof.get("errors", ()), *proof.get("warnings", ()), *_audited(evidence.audit)]
    axis = sweep.get("axis")
    axis = axis if isinstance(axis, Mapping) else {}
    coupled = [item for item in axis.get("coupled") or () if isinstance(item, Mapping)]
    return {
        "differences": _differences(evidence),
        "why": axis.get("why"),
        "coupled": [{key: item.get(key) for key in ("key", "rule", "why")} for item in coupled],
        "held": _held(evidence),
        "rules": _rules(findings, has_proof=bool(proof), has_protocol="protocol" in sweep),
        "findings": [_finding(item) for item in findings],
    }


def _audited(audit: Audit) -> Iterator[Found]:
    for finding in (*audit.report.errors, *audit.report.warnings):
        item = to_json(finding)
        assert isinstance(item, dict)
        yield item


def _differences(evidence: Evidence) -> Table:
    """Return one row per condition, one column per key that moves; changed values stand out.

    The check before the run recorded it; without its file the axis alone is known.
    """
    rows = evidence.proof.get("axis_table") or [
        {
            "condition": spec.condition,
            "is_control": spec.is_control,
            "settings": {spec.axis_key: spec.axis_value},
        }
        for spec in {spec.condition: spec for spec in evidence.folder.specs}.values()
    ]
    keys = list(dict.fromkeys(key for row in rows for key in row["settings"]))
    control: Found = next((row["settings"] for row in rows if row["is_control"]), {})
    cells = [
        [
            marked("tag", row["condition"], tag="control")
            if row["is_control"]
            else row["condition"],
            *(_setting(row["settings"], control, key) for key in keys),
        ]
        for row in rows
    ]
    headers: list[Cell] = ["condition", *(marked("code", key) for key in keys)]
    return Table("Every config key in which the conditions differ", headers, cells)


def _setting(settings: Found, control: Found, key: str) -> Cell:
    if key not in settings:
        return "–"
    text = show(settings[key])
    return text if settings[key] == control.get(key) else marked("mark", text)


def _held(evidence: Evidence) -> Table:
    """Return the knobs that the sweep states, with their values in the control."""
    control = next((s for s in evidence.folder.specs if s.is_control), evidence.folder.specs[0])
    config = flatten(control.config)
    hold = evidence.sweep.get("hold")
    keys = list(flatten(config_tree(hold))) if isinstance(hold, Mapping) else []
    configs = {spec.condition: spec.config for spec in evidence.folder.specs}
    rows = [
        [marked("code", key), marked("code", held_text(key, config[key], configs))]
        for key in keys
        if key in config
    ]
    return Table("Held in every condition", ["key", "value"], rows)


def _rules(findings: Sequence[Found], *, has_proof: bool, has_protocol: bool) -> Table:
    rows: list[list[Cell]] = []
    for rule, text in RULES.items():
        if rule == "S9" and not has_protocol:
            continue
        outcome = _outcome([item for item in findings if item["rule"] == rule])
        is_unknown = rule.startswith("S") and not has_proof
        rows.append([rule, text, marked("soft", "not recorded") if is_unknown else outcome])
    return Table("S: before the run. A: what really ran.", ["rule", "what holds", "found"], rows)


def _outcome(findings: Sequence[Found]) -> Cell:
    if any(item["severity"] == Severity.ERROR for item in findings):
        return marked("bad", "error")
    if any(not item.get("accepted_reason") for item in findings):
        return marked("warn", "warning")
    return marked("ok", "accepted" if findings else "ok")


def _finding(item: Found) -> dict[str, Any]:
    """Return one finding with its remedy and the reason for which it was accepted."""
    severity, accepted = str(item["severity"]), item.get("accepted_reason")
    return {
        "kind": "ok" if accepted else "bad" if severity == Severity.ERROR else "warn",
        "head": f"{item.get('code') or item['rule']} {'accepted' if accepted else severity}",
        "message": item["message"],
        "remedy": item["remedy"],
        "accepted": accepted,
    }
