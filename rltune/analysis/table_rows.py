"""The rows of `trials`, `history`, `evals` and `gates`, from the records of a run folder."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

from rltune.analysis.rates import counts_tasks
from rltune.analysis.summary import bounds_of
from rltune.analysis.tables import EvalRow, GateRow, HistoryRow, TrialRow, until_text
from rltune.analysis.usage import newest
from rltune.comparability.audit import env_key
from rltune.comparability.records import TrialRecord
from rltune.comparability.scored import Scored, last_scored, scored_at
from rltune.gate import MACRO, set_metric, wilson_interval
from rltune.lineage.noise import measures_of, narrowed, scores_of
from rltune.lineage.record import finite
from rltune.spec.schema.run import reserved_gpus
from rltune.store.files import dumps
from rltune.store.lock import read_driver
from rltune.store.proof import same_runs
from rltune.store.run_folder import SweepFolder, manifest_of
from rltune.store.rundir import RunDir, trial_status
from rltune.track.make import wandb_id
from rltune.types import TrialStatus

_NOT_METRICS = frozenset({"step", "time"})


def trial_rows(
    folder: SweepFolder,
    records: Sequence[TrialRecord],
    *,
    mark: str,
    lineage_ids: Mapping[str, str],
) -> list[TrialRow]:
    """Return one row per planned trial, in the order of the plan."""
    same = same_runs(folder.run)
    return [
        replace(
            _trial_row(folder, record, mark, lineage_ids.get(record.spec.trial_id, "")),
            same_run_as="; ".join(same.get(record.spec.condition, ())),
        )
        for record in records
    ]


def _trial_row(folder: SweepFolder, record: TrialRecord, mark: str, lineage_id: str) -> TrialRow:
    spec = record.spec
    return TrialRow(
        sweep=spec.sweep,
        run=folder.run.path.resolve().name,
        axis=spec.axis_key,
        condition=spec.condition,
        is_control=spec.is_control,
        axis_value=dumps(spec.axis_value, sort_keys=True),
        seed=spec.seed,
        trial_id=spec.trial_id,
        config_sha256=spec.config_hash,
        env_sha256=env_key(record),
        status=_status(folder.run, spec.trial_id).value,
        reason=_reason(record),
        planned_steps=record.planned_steps,
        final_step=record.last_step if record.metrics else None,
        metric=folder.metric_name,
        mode=folder.metric_mode,
        wandb_id=wandb_id(spec),
        lineage_id=lineage_id,
        same_run_as="",
        mark=mark,
        seeds_until=until_text(record.until),
        look=record.look,
        **_provenance(record),
        **_usage(record),
        **_scores(folder, record),
    )


def _provenance(record: TrialRecord) -> dict[str, Any]:
    """Return what ran, on what, from when to when."""
    known = record.provenance
    first = next(iter(known.get("earlier") or ()), known)
    return {
        "attempt": known.get("attempt"),
        "code_rev": str(known.get("commit", "")),
        "code_dirty": known.get("dirty"),
        "source_sha256": str(known.get("source_sha256", "")),
        "tasks_sha256": str(known.get("manifest_sha256", "")),
        "weights_sha256": str(known.get("weights_sha256", "")),
        "device": str(known.get("device", "")),
        "cpu_model": str(known.get("cpu_model", "")),
        "started": str(first.get("started", "")),
        "ended": _clock(record.metrics[-1].get("time")) if record.metrics else "",
    }


def _usage(record: TrialRecord) -> dict[str, Any]:
    """Return what the trial used: GPUs, time, and the budget counters."""
    result = record.result
    gpus = reserved_gpus(record.spec.config)
    return {
        "gpus": gpus,
        "wall_s": finite(result.total_s) if result else None,
        "train_s": finite(result.train_s) if result else None,
        "gpu_s": finite(result.total_s * gpus) if result else None,
        "rollouts": newest(record.metrics, "budget/rollouts"),
        "tokens": newest(record.metrics, "budget/generated_tokens"),
        "optimizer_steps": newest(record.metrics, "budget/optimizer_steps"),
        "policy_updates": newest(record.metrics, "budget/policy_updates"),
        "critic_updates": newest(record.metrics, "budget/critic_updates"),
    }


def _scores(folder: SweepFolder, record: TrialRecord) -> dict[str, Any]:
    """Return the held-out metric at the start, the chosen gate and the last, with its bounds."""
    result, bounds = record.result, bounds_of(folder, record)
    measured = _over_tasks_of(folder.metric_name, record)
    return {
        "heldout_tasks": int(record.spec.config["gate"]["tasks"]),
        "base": finite(result.base_metric) if result else None,
        "selected": finite(result.heldout_metric) if result else None,
        "best_step": result.best_step if result else None,
        "selected_tasks": _n_scored(scored_at(measured, result.best_step)) if result else None,
        "final": finite(result.final_metric) if result else None,
        "final_tasks": _n_scored(last_scored(measured)) if result else None,
        "floor": bounds.floor if bounds else None,
        "floor_kind": bounds.floor_kind if bounds else "",
        "floor_low": bounds.interval.low if bounds and bounds.interval else None,
        "floor_high": bounds.interval.high if bounds and bounds.interval else None,
        "ceiling": bounds.ceiling if bounds else None,
    }


def _over_tasks_of(metric: str, record: TrialRecord) -> TrialRecord:
    """Return a trial whose gates hold the tasks that a metric is over: those of its named set."""
    found = set_metric(metric)
    if found is None or found.name == MACRO:
        return record
    gates = [narrowed(gate, metric)[0] for gate in record.heldout]
    own = tuple({**gate, "n": len(gate["set"])} for gate in gates if gate)
    return replace(record, heldout=own)


def _status(run: RunDir, trial_id: str) -> TrialStatus:
    """Return the status on disk; a running trial without a live driver is interrupted."""
    status = trial_status(run.trial(trial_id))
    is_left = status is TrialStatus.RUNNING and read_driver(run.lock) is None
    return TrialStatus.INTERRUPTED if is_left else status


def _reason(record: TrialRecord) -> str:
    if record.result is not None:
        return _plain(record.result.reason)
    return _plain(str((record.failure or {}).get("reason") or ""))


def _plain(text: str) -> str:
    """Return the text as valid UTF-8: an error message may hold lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _clock(time: object) -> str:
    if not isinstance(time, int | float) or not math.isfinite(time):
        return ""
    return datetime.fromtimestamp(int(time), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]


def history_rows(records: Iterable[TrialRecord], *, mark: str) -> Iterator[HistoryRow]:
    """Yield every number of metrics.jsonl, in file order."""
    for record in records:
        began = _number(record.metrics[0].get("time")) if record.metrics else None
        for row in record.metrics:
            time = _number(row.get("time"))
            wall = None if began is None or time is None else time - began
            for name, value in row.items():
                number = None if name in _NOT_METRICS else _number(value)
                if number is not None:
                    yield HistoryRow(
                        record.spec.trial_id,
                        record.spec.condition,
                        record.spec.seed,
                        row["step"],
                        _number(row.get("budget/rollouts")),
                        _number(row.get("budget/generated_tokens")),
                        wall,
                        name,
                        finite(number),
                        "" if math.isfinite(number) else str(number),
                        mark,
                    )


def _n_scored(scored: Scored | None) -> int | None:
    return None if scored is None else scored.n


def task_ids(run: RunDir, records: Sequence[TrialRecord]) -> dict[str, list[str]]:
    """Return each trial's held-out task ids in order; none where the manifest lists none."""
    by_env: dict[str, list[str]] = {}
    for record in records:
        env = env_key(record)
        if env not in by_env:
            by_env[env] = _heldout_ids(manifest_of(run, record))
    return {record.spec.trial_id: by_env[env_key(record)] for record in records}


def _heldout_ids(manifest: Mapping[str, Any]) -> list[str]:
    try:
        return [str(task["task_id"]) for task in manifest["heldout"]]
    except (KeyError, TypeError):
        return []


def eval_rows(
    records: Iterable[TrialRecord], tasks: Mapping[str, Sequence[str]], *, mark: str
) -> Iterator[EvalRow]:
    """Yield every held-out outcome: by trial, gate, measure, task.

    If a trial recorded a gate twice, the later record counts.
    """
    for record in records:
        gates = {gate["step"]: gate for gate in record.heldout}
        for step in sorted(gates):
            yield from _gate_evals(record, gates[step], tasks[record.spec.trial_id], mark)


def _gate_evals(
    record: TrialRecord, gate: Mapping[str, Any], tasks: Sequence[str], mark: str
) -> Iterator[EvalRow]:
    spec, step, temperature = record.spec, gate["step"], _number(gate.get("temperature"))
    given = gate.get("do_sample")
    do_sample = given if isinstance(given, bool) else None
    n = len(gate.get("success") or gate.get("reward") or tasks)
    named = {**gate, "task": list(tasks) if len(tasks) == n else [str(i) for i in range(n)]}
    for metric in measures_of(gate):
        part, plain = narrowed(named, metric)
        scores = scores_of(part, plain) or []
        faults, names = part.get("fault") or [""] * len(scores), part["task"]
        for task, score, fault in zip(names, scores, faults, strict=True):
            yield EvalRow(
                spec.trial_id,
                spec.condition,
                spec.seed,
                step,
                task,
                metric,
                score,
                "" if fault == "" else _plain(str(fault)),
                1,
                temperature,
                do_sample,
                mark,
            )


def gate_rows(evals: Iterable[EvalRow]) -> list[GateRow]:
    """Return the mean over tasks of each measure at each gate, from the rows of `evals` alone.

    Episodes with a fault or without a score are excluded. Rates get a Wilson interval.
    """
    scores_at: dict[tuple[str, str, int, int, str, str], list[float | None]] = {}
    for row in evals:
        key = (row.trial_id, row.condition, row.seed, row.step, row.metric, row.mark)
        scores_at.setdefault(key, []).append(row.score)
    return [_gate_row(key, scores) for key, scores in scores_at.items()]


def _gate_row(key: tuple[str, str, int, int, str, str], scores: Sequence[float | None]) -> GateRow:
    trial_id, condition, seed, step, metric, mark = key
    known = [score for score in scores if score is not None]
    low, high = None, None
    if counts_tasks(metric) and known and all(score in (0.0, 1.0) for score in known):
        low, high = wilson_interval(int(sum(known)), len(known))
    return GateRow(
        trial_id=trial_id,
        condition=condition,
        seed=seed,
        step=step,
        metric=metric,
        n_tasks=len(known),
        n_faults=len(scores) - len(known),
        value=fmean(known) if known else None,
        wilson_lo=low,
        wilson_hi=high,
        mark=mark,
    )
