"""The proof section: what differs, what is held, what each rule found."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rltune.analysis.audit import Audit, Verdict
from rltune.comparability.findings import RULES, Finding, Severity
from rltune.report.html.gather import Evidence
from rltune.report.html.markup import Child, Html, details, el, items, join, table
from rltune.report.render import plural
from rltune.spec.identity import flatten
from rltune.spec.problems import show
from rltune.spec.shortforms import config_tree
from rltune.store.files import to_json

_VERDICTS = {
    Verdict.PASSED: ("ok", "Comparable: what ran differs in the axis alone."),
    Verdict.INCOMPLETE: ("warn", "Not finished: there is no comparison to judge yet."),
    Verdict.CONFOUNDED: ("bad", "CONFOUNDED: more than the axis differs, nothing follows."),
    Verdict.FAILED: ("bad", "AUDIT FAILED: this page does not prove a comparison."),
}

FoundIn = Mapping[str, Any]


def verdict_banner(audit: Audit) -> Html:
    """Return what the page may claim, in one line."""
    kind, text = _VERDICTS[audit.verdict]
    said: list[Child] = [el("strong", text)]
    done = f"{audit.finished} of {plural(audit.trials, 'trial')} finished."
    if audit.verdict is Verdict.PASSED and audit.finished < audit.trials:
        kind, said = "warn", [el("strong", "INCOMPLETE."), " What ran is comparable."]
    if audit.confounded:
        said.append(f" It ran anyway: {audit.confounded}.")
    return el("p", *said, f" {done}", class_=f"banner {kind}")


def proof_section(evidence: Evidence) -> Html:
    """Return the proof: the diff table, the held knobs, the rules before and after the run."""
    found = [*_static(evidence.proof), *map(_as_found, _audited(evidence.audit))]
    return el(
        "section",
        el("h2", "Can the conditions be compared?"),
        verdict_banner(evidence.audit),
        el("h3", "What differs between conditions"),
        _diff(evidence),
        *_coupled(evidence.sweep),
        el("h3", "What is held"),
        _held(evidence),
        el("h3", "Rules"),
        _rules(found, has_proof=bool(evidence.proof), has_protocol="protocol" in evidence.sweep),
        *_findings(found),
        id="proof",
        aria_label="Comparability",
    )


def _static(proof: FoundIn) -> list[FoundIn]:
    return [*proof.get("errors", ()), *proof.get("warnings", ())]


def _audited(audit: Audit) -> Iterator[Finding]:
    yield from audit.report.errors
    yield from audit.report.warnings


def _as_found(finding: Finding) -> FoundIn:
    found = to_json(finding)
    return found if isinstance(found, dict) else {}


def _diff(evidence: Evidence) -> Html:
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
    control: FoundIn = next((row["settings"] for row in rows if row["is_control"]), {})
    cells = [
        [
            join(
                row["condition"],
                el("span", " control", class_="tag") if row["is_control"] else None,
            ),
            *(_setting(row["settings"], control, key) for key in keys),
        ]
        for row in rows
    ]
    headers: list[Child] = ["condition", *(el("code", key) for key in keys)]
    return table("Every config key in which the conditions differ", headers, cells)


def _setting(settings: FoundIn, control: FoundIn, key: str) -> Html:
    if key not in settings:
        return el("span", "–")
    text = show(settings[key])
    return el("span", text) if settings[key] == control.get(key) else el("mark", text)


def _coupled(sweep: FoundIn) -> Iterator[Html]:
    """Yield why keys move with the axis."""
    axis = sweep.get("axis")
    axis = axis if isinstance(axis, Mapping) else {}
    if axis.get("why"):
        yield el("p", f"One intervention of several keys, because {axis['why']}.")
    coupled = [item for item in axis.get("coupled") or () if isinstance(item, Mapping)]
    if coupled:
        yield el("p", "Coupled keys, which are the same switch:")
        yield items(
            join(el("code", f"{one.get('key')} = {one.get('rule')}"), f", because {one.get('why')}")
            for one in coupled
        )


def _held(evidence: Evidence) -> Html:
    """Return the knobs that the sweep states, with their values in the control."""
    control = next((s for s in evidence.folder.specs if s.is_control), evidence.folder.specs[0])
    config = flatten(control.config)
    hold = evidence.sweep.get("hold")
    keys = list(flatten(config_tree(hold))) if isinstance(hold, Mapping) else []
    pairs = [(key, show(config[key])) for key in keys if key in config]
    if not pairs:
        return el("p", "The sweep file holds no knobs.")
    rows = [[el("code", key), el("code", value)] for key, value in pairs]
    return details(
        f"{plural(len(pairs), 'knob')} held at one value in every condition",
        table("Held in every condition", ["key", "value"], rows),
    )


def _rules(found: Sequence[FoundIn], *, has_proof: bool, has_protocol: bool) -> Html:
    rows = []
    for rule, text in RULES.items():
        if rule == "S9" and not has_protocol:
            continue
        if rule.startswith("S") and not has_proof:
            rows.append([rule, text, _state("not recorded", "soft")])
            continue
        rows.append([rule, text, _outcome([item for item in found if item["rule"] == rule])])
    return table("S: before the run. A: what really ran.", ["rule", "what holds", "found"], rows)


def _outcome(found: Sequence[FoundIn]) -> Html:
    if any(item["severity"] == Severity.ERROR for item in found):
        return _state("error", "bad")
    if any(not item.get("accepted_reason") for item in found):
        return _state("warning", "warn")
    return _state("accepted", "ok") if found else _state("ok", "ok")


def _state(word: str, kind: str) -> Html:
    return el("span", word, class_=f"state {kind}")


def _findings(found: Sequence[FoundIn]) -> Iterator[Html]:
    if found:
        yield el("h3", "Findings")
        yield items((finding_text(item) for item in found), class_="findings")


def finding_text(item: FoundIn) -> Html:
    """Return one finding with its remedy and the reason for which it was accepted."""
    severity = str(item["severity"])
    accepted = item.get("accepted_reason")
    kind = "ok" if accepted else "bad" if severity == Severity.ERROR else "warn"
    return join(
        _state(f"{item.get('code') or item['rule']} {'accepted' if accepted else severity}", kind),
        f" {item['message']} ",
        el("span", f"Remedy: {item['remedy']}", class_="soft"),
        el("span", f" Accepted: {accepted}") if accepted else None,
    )
