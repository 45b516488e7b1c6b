"""Collect a finding from a run folder; write nothing."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from rltune.analysis.audit import Audit, judge_folder
from rltune.analysis.rates import counts_tasks
from rltune.analysis.table_rows import eval_rows, gate_rows, task_ids, trial_rows
from rltune.analysis.table_summary import summary_rows
from rltune.analysis.tables import (
    EvalRow,
    GateRow,
    MeasureRow,
    PairRow,
    TrialRow,
    mark_of,
    until_text,
)
from rltune.comparability.records import TrialRecord
from rltune.errors import InputError, Problem, StoreError
from rltune.lineage.read import read_body
from rltune.lineage.record import finite
from rltune.report.export import lineage_ids
from rltune.report.figures.records import MEAN
from rltune.report.finding.records import FORMAT, PAGE_FORM, PRIVATE, Finding, Recorded
from rltune.report.manifest import Code, digests, input_files, manifest
from rltune.spec.identity import canonical_json, sha256_hex
from rltune.spec.keys import did_you_mean
from rltune.spec.yamlfile import read_yaml
from rltune.store.files import read_json
from rltune.store.run_folder import RecordsRead, SweepFolder, read_records

_LEFT_OUT = ("command", "inputs", "format")  # of the manifest of an export


def collect(
    folder: SweepFolder, code: Code, *, name: str, metrics: Sequence[str] = (), place: str = ""
) -> Finding:
    """Return the finding of a run folder.

    Args:
        folder: The run folder.
        code: What makes the finding.
        name: Of the finding's folder.
        metrics: Measures of metrics.jsonl to show beside the sweep's metric.
        place: How commands name it; `docs/findings/NAME` without one.

    Raises:
        InputError: No trial measured one of the metrics.
        StoreError: Nothing is planned, or a file cannot be read.

    """
    if not folder.specs:
        action = "Run the sweep: `rltune sweep FILE`."
        raise StoreError(Problem(str(folder.run.path), "no trial is planned here.", action=action))
    read = read_records(folder)
    _require_metrics(metrics, read.records)
    audit = judge_folder(folder, read)
    mark = mark_of(audit)
    trials = trial_rows(folder, read.records, mark=mark, lineage_ids=lineage_ids(folder.run))
    evals = [
        row
        for row in eval_rows(read.records, task_ids(folder.run, read.records), mark=mark)
        if row.metric == folder.metric_name
    ]
    gates = gate_rows(evals) or list(_recorded_gates(trials, read.records, folder.metric_name))
    text = folder.run.results.read_text("utf-8") if folder.run.results.is_file() else ""
    return Finding(
        manifest=_manifest(folder, read, audit, code, name=name, metrics=metrics, place=place),
        sweep=folder.run.sweep.read_text(encoding="utf-8"),
        trials=tuple(trials),
        gates=tuple(gates),
        pairs=tuple(_pairs(trials, evals)),
        measures=tuple(_measures(read.records, gates, metrics)),
        summary=tuple(summary_rows(trials, ())),
        recorded=tuple(map(_recorded, read.records)),
        lineage=read_body(text.encode(), folder.run.results, None).rows if text else (),
        lineage_text=text,
    )


def _require_metrics(metrics: Sequence[str], records: Sequence[TrialRecord]) -> None:
    known = {
        key: None
        for record in records
        for row in record.metrics
        for key, value in row.items()
        if isinstance(value, int | float) and key not in ("step", "time")
    }
    problems = [
        Problem(
            f"--metric {metric}",
            "no trial measured it.",
            "docs/metrics.md lists what is measured when.",
            did_you_mean(metric, known),
        )
        for metric in metrics
        if metric not in known
    ]
    if problems:
        raise InputError(problems)


def _manifest(
    folder: SweepFolder,
    read: RecordsRead,
    audit: Audit,
    code: Code,
    *,
    name: str,
    metrics: Sequence[str],
    place: str,
) -> dict[str, Any]:
    """Return what the page says that no table holds."""
    inputs = digests(folder.run, input_files(folder))
    content = manifest(folder, read, audit, code, inputs=(), estimator=MEAN)
    plan = _object(folder, "plan.json")
    asked = _asked(folder)
    return {
        "format": FORMAT,
        "page": PAGE_FORM,
        "name": name,
        **{key: value for key, value in content.items() if key not in _LEFT_OUT},
        "question": folder.question,
        "asked": {
            "file": plan.get("file", ""),
            "profile": plan.get("profile", ""),
            "usual_profile": asked["profile"],
            "overrides": plan.get("overrides", []),
            "seeds": plan.get("seeds", []),
            "usual_seeds": asked["seeds"],
            "until": until_text(folder.until),
        },
        "metrics": list(metrics),
        "place": place or f"docs/findings/{name}",
        "note": "",
        "inputs": {"files": len(inputs), "sha256": sha256_hex(canonical_json(inputs))},
    }


def _asked(folder: SweepFolder) -> dict[str, Any]:
    """Return profile and seeds that the sweep file itself names."""
    file = read_yaml(folder.run.sweep, kind="sweep file")
    data = {} if isinstance(file, Problem) else file.data
    profiles = data.get("profiles")
    default = profiles.get("default", "") if isinstance(profiles, Mapping) else ""
    return {"profile": default, "seeds": data.get("seeds")}


def _object(folder: SweepFolder, name: str) -> Mapping[str, Any]:
    path = folder.run.path / name
    content = read_json(path) if path.is_file() else {}
    return content if isinstance(content, dict) else {}


def public(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Return a provenance, with its earlier attempts, without what names a machine."""
    kept = {key: value for key, value in provenance.items() if key not in PRIVATE}
    earlier = provenance.get("earlier", ())
    return kept | {"earlier": [public(one) for one in earlier]} if earlier else kept


def _recorded(record: TrialRecord) -> Recorded:
    kept = public(record.provenance)
    result = record.result
    digests = (result.metrics_sha256, result.weights_sha256) if result is not None else ("", "")
    return Recorded(record.spec, kept, *digests)


def _recorded_gates(
    trials: Sequence[TrialRow], records: Sequence[TrialRecord], metric: str
) -> Iterator[GateRow]:
    """Yield the gates of a metric that no single task has, such as a mean over sets."""
    for trial, record in zip(trials, records, strict=True):
        for row in record.metrics:
            value = finite(row[metric]) if metric in row else None
            if value is not None:
                key = (trial.trial_id, trial.condition, trial.seed, row["step"], metric)
                yield GateRow(*key, trial.heldout_tasks, 0, value, None, None, trial.mark)


def _pairs(trials: Sequence[TrialRow], evals: Sequence[EvalRow]) -> Iterator[PairRow]:
    """Yield every finished seed beside the control's, where both ended at the same step."""
    metric = trials[0].metric
    if not counts_tasks(metric):
        return
    scores: dict[tuple[str, int], dict[str, float | None]] = {}
    for one in evals:
        scores.setdefault((one.trial_id, one.step), {})[one.task] = one.score
    control = {row.seed: row for row in trials if row.is_control}
    for row in trials:
        other = control.get(row.seed)
        if row.is_control or other is None or None in (row.final, other.final):
            continue
        if row.final_step is None or row.final_step != other.final_step:
            continue
        step = row.final_step
        ours, theirs = (scores.get((side.trial_id, step), {}) for side in (row, other))
        yield _pair(row, step, ours, theirs)


def _pair(
    row: TrialRow, step: int, ours: Mapping[str, float | None], theirs: Mapping[str, float | None]
) -> PairRow:
    known = [(ours[task], theirs[task]) for task in ours if task in theirs]
    both = [(a, b) for a, b in known if a is not None and b is not None]
    return PairRow(
        condition=row.condition,
        seed=row.seed,
        step=step,
        metric=row.metric,
        n_tasks=len(both),
        both=both.count((1.0, 1.0)),
        only_condition=both.count((1.0, 0.0)),
        only_control=both.count((0.0, 1.0)),
    )


def _measures(
    records: Sequence[TrialRecord], gates: Sequence[GateRow], metrics: Sequence[str]
) -> Iterator[MeasureRow]:
    """Yield each measure at every gate: its mean over the steps since the gate before.

    Values that are not finite are left out.
    """
    steps: dict[str, list[int]] = {}
    for gate in gates:
        steps.setdefault(gate.trial_id, []).append(gate.step)
    for record in records:
        own = steps.get(record.spec.trial_id, [])
        for metric in metrics:
            for before, step in zip([-1, *own], own, strict=False):
                values = [
                    value
                    for row in record.metrics
                    if before < row["step"] <= step
                    and (value := finite(row.get(metric, float("nan")))) is not None
                ]
                if values:
                    spec = record.spec
                    key = (spec.condition, spec.seed, step, metric)
                    yield MeasureRow(*key, len(values), fmean(values))
