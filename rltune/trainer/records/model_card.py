"""The card of a trial: which step was shipped and why, with what proves it. JSON and Markdown."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rltune.errors import InputError
from rltune.gate import (
    GateResult,
    Inversion,
    choose_best,
    difference_interval,
    find_inversion,
    ties,
    wilson_interval,
)
from rltune.policy.load import file_digest
from rltune.remote.state import REMOTE
from rltune.store.files import read_json, sha256_file, write_json_atomic, write_text_atomic
from rltune.store.jsonl import Row, read_metrics
from rltune.store.origin import read_origin
from rltune.store.rundir import TrialDir
from rltune.trainer.job import Job
from rltune.types import TrialResult
from rltune_envs.faults import too_many_faults

FORMAT = "rltune-card-1"
Card = dict[str, Any]


def make_card(
    job: Job, result: TrialResult, gates: Sequence[GateResult], tasks_sha256: str
) -> Card:
    """Return the card of a trial whose last gate is done; `gates` include step 0."""
    trial, mode = job.trial, job.metric.mode
    best = choose_best(gates, mode=mode)
    equal = ties(gates, mode=mode)
    pool = pool_counts(read_metrics(trial.metrics).rows)
    inversion = find_inversion(gates, [(s, n) for _, s, n in pool])
    origin = read_origin(trial)
    return {
        "format": FORMAT,
        "trial_id": trial.trial_id,
        **_names(trial),
        "seed": job.config.seed,
        "status": result.status,
        "reason": result.reason,
        "selected_on": "heldout",
        "metric": {"name": job.metric.name, "mode": mode},
        "chosen": {
            "step": best.step,
            "metric": best.metric,
            "ties": [gate.step for gate in equal],
            "within_noise": [gate.step for gate in gates if _is_close(gate, best)],
            "why": _why(best, equal, gates),
        },
        "gates": [
            {**asdict(gate), "interval": wilson_interval(gate.successes, gate.n)} for gate in gates
        ],
        "checkpoint": _checkpoint(trial.checkpoint(best.step)),
        "heldout": {"tasks_sha256": tasks_sha256, "manifest_sha256": job.manifest.sha256},
        "config_hash": job.config_hash,
        "start": {
            "weights_sha256": job.policy.weights_sha256,
            "parent": None if origin is None else origin.parent,
            "parent_step": None if origin is None else origin.step,
        },
        "code": _code(trial),
        "metrics_sha256": result.metrics_sha256,
        "pool": [{"step": step, "successes": s, "n": n} for step, s, n in pool],
        "inversion": None if inversion is None else inversion._asdict(),
        "warnings": [
            *result.warnings,
            *([] if inversion is None else [inversion_sentence(inversion)]),
        ],
    }


def write_card(
    job: Job, result: TrialResult, gates: Sequence[GateResult], tasks_sha256: str
) -> None:
    """Write card.json and card.md, and give the trial's log their warnings."""
    card = make_card(job, result, gates, tasks_sha256)
    write_json_atomic(job.trial.model_card, card)
    write_text_atomic(job.trial.model_card.with_suffix(".md"), card_markdown(card))
    for warning in card["warnings"]:
        job.warn(warning)


def pool_counts(rows: Iterable[Row]) -> list[tuple[int, int, int]]:
    """Return (step, successes, episodes without a fault) of each training step."""
    counts, before = [], 0
    for row in rows:
        if "rollout/success_rate" not in row:
            continue
        total = int(row["budget/rollouts"])
        rate = float(row["rollout/success_rate"])
        n = 0 if math.isnan(rate) else total - before - int(row.get("rollout/fault_count", 0))
        before = total
        counts.append((int(row["step"]), round(rate * n) if n else 0, n))
    return counts


def inversion_sentence(inversion: Inversion) -> str:
    """Return the warning in words, with both ends of both curves."""
    (h0, h1), (p0, p1) = inversion.heldout, inversion.pool
    return (
        f"inversion: training success rose {p0:.3f} -> {p1:.3f} {_signed(inversion.pool_change)} "
        f"while held-out success fell {h0:.3f} -> {h1:.3f} {_signed(inversion.heldout_change)} "
        "(95 %): it learned what does not carry over"
    )


def _signed(interval: Sequence[float]) -> str:
    return f"[{interval[0]:+.3f}, {interval[1]:+.3f}]"


def _names(trial: TrialDir) -> dict[str, Any]:
    """Return sweep and condition; empty where no sweep made the trial."""
    names = ("sweep", "condition", "axis_key", "axis_value")
    spec = asdict(trial.read_spec()) if trial.spec.exists() else dict.fromkeys(names, "")
    return {name: spec[name] for name in names}


def _code(trial: TrialDir) -> dict[str, Any]:
    try:
        provenance = read_json(trial.provenance)
    except InputError:
        provenance = {}
    names = ("commit", "dirty", "diff_sha256", "source_sha256", "versions", "device")
    return {name: provenance.get(name) for name in names}


def _checkpoint(folder: Path) -> dict[str, str] | None:
    """Return the shipped weights; None when they are gone, which only a person can have done."""
    if (folder / REMOTE).exists():
        remote = read_json(folder / REMOTE)
        return {
            "path": f"{folder.parent.name}/{folder.name}",
            "weights_sha256": "unknown",
            "remote": remote["path"],
        }
    path = folder / "policy.safetensors"
    if not path.exists():
        return None
    return {
        "path": f"{folder.parent.name}/{folder.name}",
        "weights_sha256": file_digest(path),
        "file_sha256": sha256_file(path),
    }


def _is_close(gate: GateResult, best: GateResult) -> bool:
    """Tell whether the success rates of two gates cannot be told apart at 95 %."""
    if gate is best:
        return False
    low, high = difference_interval((gate.successes, gate.n), (best.successes, best.n))
    return low <= 0.0 <= high


def _why(best: GateResult, equal: Sequence[GateResult], gates: Sequence[GateResult]) -> str:
    why = f"best held-out metric of {len(gates)} gates, step 0 included"
    if equal:
        why += "; of equals the earliest"
    if best.step == 0:
        why += "; training did not beat the start"
    return why


def card_markdown(card: Mapping[str, Any]) -> str:
    """Return the card for people."""
    chosen, metric = card["chosen"], card["metric"]
    lines = [
        f"# {card['trial_id']}",
        "",
        f"Shipped: **step {chosen['step']}**, {metric['name']} {chosen['metric']:.4g}. "
        f"Selected on held-out tasks only: {chosen['why']}.",
        f"Ties: {_listed(chosen['ties'])}. "
        f"Not separable from it at 95 %: {_listed(chosen['within_noise'])}.",
        "",
        *(f"**Warning**, {warning}." for warning in card["warnings"]),
        *([""] if card["warnings"] else []),
        f"| step | {metric['name']} | solved | n | rate | 95 % Wilson | training rate since | |",
        "|---|---|---|---|---|---|---|---|",
        *_gate_rows(card),
        "",
        *(f"- {name}: {value}" for name, value in _facts(card)),
    ]
    return "\n".join(lines) + "\n"


def _listed(steps: Sequence[int]) -> str:
    return "none" if not steps else "step " + ", ".join(map(str, steps))


def _gate_rows(card: Mapping[str, Any]) -> Iterable[str]:
    before = 0
    for gate in card["gates"]:
        low, high = gate["interval"]
        part = [row for row in card["pool"] if before < row["step"] <= gate["step"]]
        n = sum(row["n"] for row in part)
        pool = f"{sum(row['successes'] for row in part) / n:.3f}" if n else "-"
        rate = gate["successes"] / max(1, gate["n"])
        marks = ["shipped"] * (gate["step"] == card["chosen"]["step"])
        marks += ["lost to faults"] * too_many_faults(gate["lost"], gate["n"] + gate["lost"])
        yield (
            f"| {gate['step']} | {gate['metric']:.4g} | {gate['successes']} | {_scored(gate)} | "
            f"{rate:.3f} | [{low:.3f}, {high:.3f}] | {pool} | {', '.join(marks)} |"
        )
        before = gate["step"]


def _scored(gate: Mapping[str, Any]) -> str:
    """Return the tasks that count, of those that were played where some had a fault."""
    n, lost = gate["n"], gate["lost"]
    return f"{n} of {n + lost}" if lost else str(n)


def _facts(card: Mapping[str, Any]) -> Iterable[tuple[str, object]]:
    yield "status", f"{card['status']}{': ' + card['reason'] if card['reason'] else ''}"
    yield "sweep, condition, seed", f"{card['sweep']}, {card['condition']}, {card['seed']}"
    checkpoint = card["checkpoint"]
    if checkpoint is None:
        yield "checkpoint", "its folder is gone"
    else:
        held = f", on the service as {checkpoint['remote']}" if "remote" in checkpoint else ""
        yield "checkpoint", f"{checkpoint['path']}, weights {checkpoint['weights_sha256']}{held}"
    start = card["start"]
    parent = f", step {start['parent_step']} of {start['parent']}" if start["parent"] else ""
    yield "start", f"weights {start['weights_sha256']}{parent}"
    yield "held-out tasks", card["heldout"]["tasks_sha256"]
    yield "manifest", card["heldout"]["manifest_sha256"]
    yield "config", card["config_hash"]
    code = card["code"]
    yield "commit", f"{code['commit']}{', dirty' if code['dirty'] else ''}"
    yield "metrics", card["metrics_sha256"]
