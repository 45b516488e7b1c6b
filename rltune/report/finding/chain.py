"""The links of a finding's evidence: each yields where one record contradicts another."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rltune.analysis.tables import GateRow, TrialRow, against, mark_of_counts, until_of
from rltune.errors import SpecError
from rltune.gate import GateResult, choose_best, wilson_interval
from rltune.lineage.row import LineageRow
from rltune.report.finding.records import Finding, Recorded
from rltune.spec.expand import expand
from rltune.spec.identity import config_hash
from rltune.spec.load import load_sweep
from rltune.store.files import dumps
from rltune.types import TrialSpec, TrialStatus

_ROUNDING = 1e-9


def sweep_to_trials(folder: Path, finding: Finding) -> tuple[list[str], str]:
    """Return where the trials are not those of the sweep file, and why that could not be seen."""
    problems = list(_missing_seeds(finding))
    try:
        specs = _specs_of(folder / "sweep.yaml", finding.manifest["asked"])
    except SpecError as error:
        return problems, f"the sweep file cannot be resolved here: {str(error).splitlines()[0]}"
    problems += _not_of_file(specs, finding)
    known = {(spec.condition, spec.seed): spec.trial_id for spec in specs}
    others = sum(
        known.get((row.condition, row.seed), row.trial_id) != row.trial_id for row in finding.trials
    )
    unseen = f"this rltune resolves {others} of their configs otherwise" if others else ""
    return list(dict.fromkeys(problems)), unseen


def _missing_seeds(finding: Finding) -> Iterator[str]:
    """Yield the seeds that a condition lacks, as far as the trials tell."""
    is_until = finding.manifest["asked"].get("until")
    why = "the looks needed it" if is_until else "other conditions have this seed"
    for condition, rows in finding.conditions.items():
        there = {row.seed for row in rows}
        for seed in _due_seeds(finding, condition):
            if seed not in there:
                yield f"trials.csv: {condition}, seed {seed} is missing; {why}"


def _specs_of(file: Path, asked: Mapping[str, Any]) -> Sequence[TrialSpec]:
    """Return the trials of a sweep file as the run was asked for it."""
    loaded = load_sweep(
        file,
        profile=str(asked["profile"]) or None,
        overrides=[str(text) for text in asked["overrides"]],
        seeds=[int(seed) for seed in asked["seeds"]] or None,
    )
    return expand(loaded)


def _not_of_file(specs: Sequence[TrialSpec], finding: Finding) -> Iterator[str]:
    """Yield the trials of a sweep file that are missing, and conditions that it does not have."""
    grid = {(row.condition, row.seed) for row in finding.trials}
    is_until = finding.manifest["asked"].get("until")
    for spec in specs:
        is_due = not is_until or spec.seed in _due_seeds(finding, spec.condition)
        if is_due and (spec.condition, spec.seed) not in grid:
            yield f"trials.csv: {spec.condition}, seed {spec.seed} of sweep.yaml is missing"
    asked_for = {spec.condition for spec in specs}
    for label in finding.conditions:
        if label not in asked_for:
            yield f"trials.csv: {label} is not a condition of sweep.yaml"


def _due_seeds(finding: Finding, condition: str) -> list[int]:
    """Return the seeds that a condition must have, as far as the trials tell.

    Of listed seeds those that any other condition has. Until decided the first in their order: at
    least those of the first look, as many as there are, and for the control as many as for any.
    """
    asked = finding.manifest["asked"]
    plan = until_of(str(asked.get("until", "")))
    if plan is None:
        return sorted({row.seed for row in finding.trials})
    counts = {label: len(rows) for label, rows in finding.conditions.items()}
    if condition == finding.control:
        counts[condition] = max(counts.values())
    return list(asked["seeds"])[: max(plan.start, counts.get(condition, 0))]


def recorded_to_trials(finding: Finding) -> Iterator[str]:
    """Yield where trials.json contradicts itself or trials.csv."""
    if [one.spec.trial_id for one in finding.recorded] != [r.trial_id for r in finding.trials]:
        yield "trials.json: its trials are not those of trials.csv"
        return
    for row, one in zip(finding.trials, finding.recorded, strict=True):
        for name, old, new in _recorded(row, one):
            if old != new:
                yield f"trials.csv: {row.trial_id}, {name}: {old}, trials.json has {new}"
        digest = config_hash(one.spec.config)
        if digest != one.spec.config_hash or not row.trial_id.endswith(digest[:10]):
            yield (
                f"trials.json: {row.trial_id}: its config has the identity {digest[:10]}, not "
                f"{one.spec.config_hash[:10]}"
            )


def _recorded(row: TrialRow, one: Recorded) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, value of trials.csv, value of trials.json."""
    spec, ran = one.spec, one.provenance
    yield "condition", row.condition, spec.condition
    yield "seed", row.seed, spec.seed
    yield "seed of the config", row.seed, spec.config.get("seed")
    yield "is_control", row.is_control, spec.is_control
    yield "axis", row.axis, spec.axis_key
    yield "axis_value", row.axis_value, dumps(spec.axis_value, sort_keys=True)
    yield "config_sha256", row.config_sha256, spec.config_hash
    yield "planned_steps", row.planned_steps, spec.config["budget"]["steps"]
    yield "heldout_tasks", row.heldout_tasks, spec.config["gate"]["tasks"]
    if ran:
        yield "code_rev", row.code_rev, ran.get("commit", "")
        yield "code_dirty", row.code_dirty, ran.get("dirty")
        yield "source_sha256", row.source_sha256, ran.get("source_sha256", "")
        yield "tasks_sha256", row.tasks_sha256, ran.get("manifest_sha256", "")
        yield "weights_sha256", row.weights_sha256, ran.get("weights_sha256", "")
        yield "device", row.device, ran.get("device", "")


def gates_to_trials(finding: Finding) -> Iterator[str]:
    """Yield where a trial's result is not what its gates give."""
    own: dict[str, list[GateRow]] = {}
    for gate in finding.gates:
        own.setdefault(gate.trial_id, []).append(gate)
        yield from _interval(gate)
    for row in finding.trials:
        gates = own.pop(row.trial_id, [])
        if row.final_step is not None and TrialStatus(row.status).is_finished:
            for name, new in _ends(gates, row).items():
                old = getattr(row, name)
                if old != new and not is_same_mean(old, new):
                    yield f"trials.csv: {row.trial_id}, {name}: {old}, its gates give {new}"
    for trial_id in own:
        yield f"gates.csv: {trial_id} is not a trial of trials.csv"


def is_same_mean(old: Any, new: Any) -> bool:
    """Tell whether two numbers are one mean: a trial adds its tasks in another order."""
    are_numbers = isinstance(old, int | float) and isinstance(new, int | float)
    return are_numbers and math.isclose(old, new, rel_tol=_ROUNDING, abs_tol=_ROUNDING)


def _ends(gates: Sequence[GateRow], row: TrialRow) -> dict[str, Any]:
    """Return base, selected, best_step and final as the gates give them."""
    by_step = {gate.step: gate for gate in gates}
    results = [_result(gate) for gate in gates]
    ends: dict[str, Any] = {"base": _value(by_step.get(0))}
    ends["final"] = _value(by_step.get(row.final_step or 0))
    if any(math.isfinite(one.metric) for one in results):
        best = choose_best(results, mode="min" if row.mode == "min" else "max")
        ends |= {"best_step": best.step, "selected": None if best.is_lost else best.metric}
    return ends


def _result(gate: GateRow) -> GateResult:
    value = math.nan if gate.value is None else gate.value
    return GateResult(gate.step, value, gate.n_tasks, 0, gate.n_faults)


def _value(gate: GateRow | None) -> float | None:
    """Return the value of a gate; None without one, or where faults took too many tasks."""
    return None if gate is None or _result(gate).is_lost else gate.value


def _interval(gate: GateRow) -> Iterator[str]:
    """Yield where a gate of a rate is not a share of its tasks, or its interval is another's."""
    if gate.value is None or gate.wilson_lo is None:
        return
    solved = gate.value * gate.n_tasks
    where = f"gates.csv: {gate.trial_id}, step {gate.step}"
    if abs(solved - round(solved)) > _ROUNDING * max(1, gate.n_tasks):
        yield f"{where}: {gate.value} is not a share of {gate.n_tasks} tasks"
        return
    low, high = wilson_interval(round(solved), gate.n_tasks)
    if (gate.wilson_lo, gate.wilson_hi) != (low, high):
        yield (
            f"{where}: Wilson interval {gate.wilson_lo}, {gate.wilson_hi}, recomputed {low}, {high}"
        )


def pairs_to_trials(finding: Finding) -> Iterator[str]:
    """Yield where the tasks solved by a pair of trials do not give the two trials' results."""
    finals = {(row.condition, row.seed): row for row in finding.trials}
    for pair in finding.pairs:
        where = f"pairs.csv: {pair.condition}, seed {pair.seed}"
        ours = finals.get((pair.condition, pair.seed))
        theirs = finals.get((finding.control, pair.seed))
        if ours is None or theirs is None:
            yield f"{where} is not a pair of trials"
            continue
        for row, only in ((ours, pair.only_condition), (theirs, pair.only_control)):
            is_whole = row.final_tasks == pair.n_tasks
            solved = pair.both + only
            if is_whole and row.final is not None and solved != round(row.final * pair.n_tasks):
                yield (
                    f"{where}: {solved} of {pair.n_tasks} tasks, trials.csv has {row.final} for "
                    f"{row.trial_id}"
                )


def lineage_to_trials(finding: Finding) -> Iterator[str]:
    """Yield where the lineage of the run contradicts its trials."""
    rows: dict[str, LineageRow] = {}
    for row in finding.lineage:
        if row.is_of_sweep:
            rows[row.trial_id] = row
    told = {one.spec.trial_id: one.spec.expected_delta for one in finding.recorded}
    for trial in finding.trials:
        found = rows.pop(trial.trial_id, None)
        if found is None and TrialStatus(trial.status).has_ended:
            yield f"results.tsv: {trial.trial_id} has no row, and trials.csv says {trial.status}"
        elif found is not None:
            if found.expected_delta != told.get(trial.trial_id, ""):
                yield (
                    f"results.tsv: {trial.trial_id}, expected_delta: {found.expected_delta!r}, "
                    f"trials.json has {told.get(trial.trial_id, '')!r}"
                )
            for name, old, new in _of_lineage(trial, found):
                if old != new:
                    yield f"results.tsv: {trial.trial_id}, {name}: {new}, trials.csv has {old}"
    for trial_id, row in rows.items():
        yield f"trials.csv: {trial_id} is missing; results.tsv says {row.status.value}"


def _of_lineage(trial: TrialRow, row: LineageRow) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, value of trials.csv, value of results.tsv."""
    yield "condition", trial.condition, row.condition
    yield "seed", trial.seed, row.seed
    yield "config_hash", trial.config_sha256, row.config_hash
    yield "commit", f"{trial.code_rev}{'-dirty' if trial.code_dirty else ''}", row.commit
    yield "core_metric", trial.selected, row.core_metric
    if TrialStatus(trial.status).is_finished:
        yield "best_step", trial.best_step, row.best_step
        yield "metric_name", trial.metric, row.metric_name


def manifest_to_trials(finding: Finding) -> Iterator[str]:
    """Yield where the manifest contradicts the trials."""
    manifest, trials = finding.manifest, finding.trials
    yield from _counts(finding)
    yield from _marks(finding)
    until = str(manifest["asked"].get("until", ""))
    for plan in {row.seeds_until for row in trials} - {until}:
        yield f"trials.csv: seeds_until: {plan!r}, manifest.json has {until!r}"
    names = {row.sweep for row in trials}
    if names != {manifest["sweep"]}:
        yield f"manifest.json: sweep: {manifest['sweep']}, trials.csv has {', '.join(names)}"
    mark = _mark(finding)
    if against(mark) and any(row.verdict.startswith(("above", "below")) for row in finding.summary):
        yield f"summary.csv: it ranks conditions although the sweep is {mark}"


def _counts(finding: Finding) -> Iterator[str]:
    """Yield where the manifest counts other trials, or its audit contradicts itself."""
    about, audit = finding.about, finding.manifest["audit"]
    finished = sum(TrialStatus(row.status).is_finished for row in finding.trials)
    for name, old, new in (
        ("planned", about.planned, len(finding.trials)),
        ("finished", about.finished, finished),
    ):
        if old != new:
            yield f"manifest.json: trials.{name}: {old}, trials.csv has {new}"
    if bool(audit["errors"]) != (audit["verdict"] == "failed"):
        yield f"manifest.json: the audit {audit['verdict']} with {len(audit['errors'])} errors"


def _mark(finding: Finding) -> str:
    """Return the mark that the audit gives to all that is made from the trials."""
    audit, about = finding.manifest["audit"], finding.about
    return mark_of_counts(
        is_failed=audit["verdict"] == "failed",
        is_confounded=bool(audit["confounded"]),
        is_whole=about.finished >= about.planned,
    )


def _marks(finding: Finding) -> Iterator[str]:
    """Yield where the manifest or a trial has another mark than the audit gives."""
    mark = _mark(finding)
    marks = {"manifest.json: mark": str(finding.manifest["mark"])}
    marks |= {f"trials.csv: {row.trial_id}, mark": row.mark for row in finding.trials}
    for where, old in marks.items():
        if old != mark:
            yield f"{where}: {old!r}, the audit gives {mark!r}"
