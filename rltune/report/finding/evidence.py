"""What a finding rests on: budget, audit, what ran, how to run it again, its files."""

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from rltune.analysis.audit import AuditVerdict
from rltune.report.figures.data_budget import budget_data, spread_text
from rltune.report.figures.notes import by_condition, label_of
from rltune.report.figures.records import LeftOut
from rltune.report.finding.records import Finding
from rltune.report.finding.words import DASH, bullets, code, plain, seconds, table
from rltune.report.render import plural, quantity
from rltune.spec.identity import canonical_json, flatten
from rltune.spec.problems import show

_VERDICTS = {
    AuditVerdict.PASSED: "The audit passed: what ran differs in the axis alone.",
    AuditVerdict.INCOMPLETE: "The sweep has not finished: there is no comparison to judge yet.",
    AuditVerdict.CONFOUNDED: "Confounded: more than the axis differs.",
    AuditVerdict.FAILED: "The audit failed: what ran is no comparison.",
}
_FILES = {
    "trials.csv": "one row a trial: what ran, how it ended, what it used and measured",
    "gates.csv": "the metric of every trial at every gate, with its Wilson interval",
    "pairs.csv": "of each seed: tasks solved by the condition, by the control, by both",
    "measures.csv": "the other measures of each trial, from gate to gate",
    "summary.csv": "estimates, differences, tests and verdicts over seeds",
    "results.tsv": "the lineage of the run: every attempt, prediction and outcome",
    "trials.json": "every trial's resolved config, provenance and digest of its metrics",
    "sweep.yaml": "the sweep file as it was run",
    "manifest.json": "the audit, the software, and the digest of every file here",
}
_WITH_ROWS = {"pairs.csv": "pairs", "measures.csv": "measures", "results.tsv": "lineage"}


def budget(finding: Finding) -> str:
    """Return what each condition used, mean over its finished trials."""
    data = budget_data(finding.tables)
    if isinstance(data, LeftOut):
        return f"{data.reason[:1].upper()}{data.reason[1:]}."
    means = [dict(one.means) for one in data.quantities]
    rows = [
        [code(label), *(_used(own.get(label), one.unit) for own, one in _zip(means, data))]
        for label in finding.conditions
    ]
    rows.append(
        ["largest over smallest", *(spread_text(q.spread) or DASH for q in data.quantities)]
    )
    headers = ["mean of a trial", *(one.label for one in data.quantities)]
    warnings = filter(_is_budget, finding.manifest["audit"]["warnings"])
    found = bullets(_finding(item, finding) for item in warnings)
    parts = (table(headers, rows, numeric=range(1, len(headers))), _in_total(finding), found)
    return "\n\n".join(filter(None, parts))


def _in_total(finding: Finding) -> str:
    wall = sum(row.wall_s or 0.0 for row in finding.trials)
    tokens = sum(row.tokens or 0.0 for row in finding.trials)
    return (
        f"All {plural(len(finding.trials), 'trial')} together took {seconds(wall)} and sampled "
        f"{quantity(tokens)} tokens in training."
    )


def _zip(means: list[dict[str, float]], data: Any) -> Iterable[tuple[dict[str, float], Any]]:
    return zip(means, data.quantities, strict=True)


def _used(mean: float | None, unit: str) -> str:
    if mean is None:
        return DASH
    return seconds(mean) if unit == "s" else quantity(mean)


def _is_budget(item: Mapping[str, Any]) -> bool:
    return str(item["rule"]) == "A3"


def evidence(finding: Finding) -> str:
    """Return the verdict of the audit, what it found, and which trials are in no mean."""
    audit, about = finding.manifest["audit"], finding.about
    done = f"{about.finished} of {plural(about.planned, 'trial')} have a result."
    found = [
        *(_finding(item, finding) for item in audit["errors"]),
        *(_finding(item, finding) for item in audit["warnings"] if not _is_budget(item)),
        *map(plain, about.open_warnings),
        *(f"{code(one['trial_id'])} is in no mean: {plain(one['why'])}" for one in _lost(finding)),
        *(f"unreadable: {plain(line)}" for line in finding.manifest["unreadable"]),
    ]
    if finding.page_form >= 3 and any(map(_is_budget, audit["warnings"])):
        found.insert(0, "A3 warns of the budget: see above.")
    verdict = _VERDICTS[AuditVerdict(audit["verdict"])]
    if finding.page_form >= 3 and found and audit["verdict"] == AuditVerdict.PASSED:
        verdict = "The audit passed, with warnings: the configs differ in the axis alone."
    rest = bullets(found) if found else "Nothing was found against it."
    return f"{verdict} {done}\n\n{rest}"


def _lost(finding: Finding) -> list[Mapping[str, Any]]:
    return list(finding.manifest["not_in_summary"])


def _finding(item: Mapping[str, Any], finding: Finding) -> str:
    accepted = item.get("accepted_reason")
    reason = f" Accepted: {plain(str(accepted))}" if accepted else ""
    name = item.get("code") or item["rule"]
    message = by_condition(str(item["message"]), finding.trials)
    return f"{name} {item['severity']}: {plain(message)}{reason}"


def what_ran(finding: Finding) -> str:
    """Return the sweep in facts: what moved, what did not, on what."""
    first, config = finding.trials[0], flatten(finding.recorded[0].spec.config)
    facts = [
        ("Axis", f"{code(first.axis)}; {_moving(finding)}"),
        ("Seeds", ", ".join(str(seed) for seed in sorted({r.seed for r in finding.trials}))),
        ("Task", code(str(config["env.kind"]))),
        ("Model", code(str(config["policy.model"]))),
        ("Training", f"{first.planned_steps} steps, {_rollouts(config)}"),
        ("Decided by", f"{label_of(first.metric)} on {first.heldout_tasks} frozen tasks"),
        ("Code", _each(row.code_rev for row in finding.trials)),
        ("Sources, sha256", _each(row.source_sha256 for row in finding.trials)),
        ("Weights at the start, sha256", _each(row.weights_sha256 for row in finding.trials)),
        ("Frozen tasks, sha256", _each(row.tasks_sha256 for row in finding.trials)),
        ("Machine", _machine(finding)),
        ("Software", _software(finding)),
        ("Run folder", f"{code(first.run)}, {_inputs(finding)}"),
    ]
    return table(["what", "value"], [list(fact) for fact in facts])


def _moving(finding: Finding) -> str:
    """Return in which config keys the trials differ, the seed apart."""
    configs = [flatten(one.spec.config) for one in finding.recorded]
    keys = sorted({key for config in configs for key in config})
    moving = [
        key
        for key in keys
        if key not in ("seed", finding.trials[0].axis)
        and len({canonical_json(config.get(key, "<absent>")) for config in configs}) > 1
    ]
    if not moving:
        return "no other key of the config differs between the trials"
    return f"with it {plural(len(moving), 'key')}: {', '.join(map(code, moving))}"


def _rollouts(config: Mapping[str, Any]) -> str:
    groups, size = config["rollout.groups"], config["rollout.group_size"]
    return f"{groups} groups of {size} episodes a step"


def _each(values: Iterable[str]) -> str:
    known = sorted({value for value in values if value})
    shown = [code(value[:16]) for value in known[:4]]
    more = [f"and {len(known) - 4} more"] if len(known) > 4 else []
    return ", ".join([*shown, *more]) or "not recorded"


def _machine(finding: Finding) -> str:
    trials = finding.trials
    names = sorted({row.cpu_model if row.device == "cpu" else row.device for row in trials} - {""})
    threads = sorted({str(one.provenance.get("threads", "?")) for one in finding.recorded})
    return f"{plain(', '.join(names)) or 'not recorded'}, {'/'.join(threads)} thread a trial"


def _software(finding: Finding) -> str:
    known = {
        canonical_json(one.provenance.get("versions", {})): one.provenance.get("versions", {})
        for one in finding.recorded
    }
    texts = [
        ", ".join(f"{name} {number}" for name, number in one.items()) for one in known.values()
    ]
    return plain("; or ".join(filter(None, texts))) or "not recorded"


def _inputs(finding: Finding) -> str:
    inputs = finding.manifest["inputs"]
    return f"{plural(inputs['files'], 'file')}, sha256 {code(inputs['sha256'][:16])}"


def reproduce(finding: Finding) -> str:
    """Return the commands: the sweep, this page, any one trial."""
    place = str(finding.manifest.get("place") or f"docs/findings/{finding.name}")
    commits = sorted({row.code_rev for row in finding.trials if row.code_rev})
    trial = finding.trials[-1]
    name = f"{trial.condition.partition('=')[2] or trial.condition}@{trial.seed}"
    again = (f"rltune report {place}", "page and figures again, from the tables")
    redraw = [] if place.endswith(".zip") else [again]  # a bundle stays as it is
    lines = [
        (f"rltune verify {place}", "every number here, from the tables"),
        *redraw,
        (f"rltune verify {place} --rerun 1", "a trial drawn at random, again"),
        (f"rltune verify {place} --trial {shlex.quote(name)}", "this one trial, again"),
        (_sweep_command(finding), "the whole sweep, again"),
    ]
    width = max(len(command) for command, _ in lines[:-1])
    block = "\n".join(f"{command:<{width}}  # {what}" for command, what in lines)
    code_of = (
        f"The trials ran at commit {code(commits[0])}. Later code gives the same bits unless it "
        "changed what they compute; `verify` says which of both it is, and what changed."
        if commits
        else "The commit of the trials was not recorded."
    )
    return f"{_changed(finding)} {code_of}\n\n```bash\n{block}\n```"


def _sweep_command(finding: Finding) -> str:
    asked = finding.manifest["asked"]
    words = ["rltune", "sweep", str(asked["file"]) or "sweep.yaml"]
    if _has_other_seeds(asked):
        words += ["--seeds", ",".join(map(str, asked["seeds"]))]
    if asked["profile"] != asked["usual_profile"]:
        words += ["--profile", str(asked["profile"])]
    for text in asked["overrides"]:
        words += ["--set", str(text)]
    if finding.about.confounded:
        words += ["--allow-confounded", finding.about.confounded]
    return shlex.join(words)


def _has_other_seeds(asked: Mapping[str, Any]) -> bool:
    """Tell whether the run was given other seeds than its sweep file lists."""
    usual = asked["usual_seeds"]
    return isinstance(usual, list) and list(asked["seeds"]) != usual


def _changed(finding: Finding) -> str:
    """Return what the run changed of its sweep file."""
    asked = finding.manifest["asked"]
    changes = []
    if _has_other_seeds(asked):
        changes.append(f"seeds {show(asked['seeds'])} in place of {show(asked['usual_seeds'])}")
    if asked["profile"] != asked["usual_profile"]:
        changes.append(f"profile {asked['profile']}")
    changes += [code(str(text)) for text in asked["overrides"]]
    where = code(str(asked["file"]) or "sweep.yaml")
    if not changes:
        return f"The run is {where} as it stands."
    return f"The run is {where} with {'; '.join(changes)}."


def files(finding: Finding) -> str:
    """Return the files of the folder."""
    known = [
        (name, text)
        for name, text in _FILES.items()
        if name not in _WITH_ROWS or getattr(finding, _WITH_ROWS[name])
    ]
    return bullets(f"[{name}]({name}): {text}" for name, text in known)
