"""The columns of the exported tables. Each is defined for readers in docs/export.md.

A row holds plain values only, so that CSV and Parquet can carry it there and back unchanged; a
number that is not known is None.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from rltune.analysis.audit import Audit, AuditVerdict
from rltune.analysis.ends import End
from rltune.types import SeedPlan, TrialStatus

LATER = {"later": True}
"""Metadata of a column that tables published before it do not have: they read as its default.

A new column needs it, and a default that says what was true of every run before.
"""


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One planned trial of the sweep, whatever became of it."""

    sweep: str
    run: str
    axis: str
    condition: str
    is_control: bool
    axis_value: str
    seed: int
    trial_id: str
    attempt: int | None
    config_sha256: str
    code_rev: str
    code_dirty: bool | None
    source_sha256: str
    tasks_sha256: str
    weights_sha256: str
    env_sha256: str
    device: str
    cpu_model: str
    gpus: float
    status: str
    reason: str
    started: str
    ended: str
    wall_s: float | None
    train_s: float | None
    gpu_s: float | None
    rollouts: float | None
    tokens: float | None
    optimizer_steps: float | None
    policy_updates: float | None
    critic_updates: float | None
    planned_steps: int
    final_step: int | None
    metric: str
    mode: str
    heldout_tasks: int
    base: float | None
    selected: float | None
    best_step: int | None
    final: float | None
    selected_tasks: int | None
    final_tasks: int | None
    floor: float | None
    floor_kind: str
    floor_low: float | None
    floor_high: float | None
    ceiling: float | None
    wandb_id: str
    lineage_id: str
    same_run_as: str
    seeds_until: str = field(default="", metadata=LATER, kw_only=True)
    look: int | None = field(default=None, metadata=LATER, kw_only=True)
    mark: str


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One number of one line of metrics.jsonl."""

    trial_id: str
    condition: str
    seed: int
    step: int
    rollouts: float | None
    tokens: float | None
    wall_s: float | None
    metric: str
    value: float | None
    not_finite: str
    mark: str


@dataclass(frozen=True, slots=True)
class EvalRow:
    """One measure of one held-out episode at one gate."""

    trial_id: str
    condition: str
    seed: int
    step: int
    task: str
    metric: str
    score: float | None
    fault: str
    n_samples: int
    temperature: float | None
    do_sample: bool | None
    mark: str


@dataclass(frozen=True, slots=True)
class GateRow:
    """One measure of one trial at one gate, over its tasks."""

    trial_id: str
    condition: str
    seed: int
    step: int
    metric: str
    n_tasks: int
    n_faults: int
    value: float | None
    wilson_lo: float | None
    wilson_hi: float | None
    mark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRow:
    """One estimate of one measure of one condition, over its seeds."""

    sweep: str
    condition: str
    is_control: bool
    metric: str
    at: str
    step: int | None
    n_planned: int
    n_seeds: int
    n_tasks: int
    estimator: str
    value: float | None
    ci_lo: float | None
    ci_hi: float | None
    ci_level: float
    method: str
    reps: int | None
    rng_seed: int | None
    delta_vs_control: float | None = None
    delta_n: int | None = None
    delta_ci_lo: float | None = None
    delta_ci_hi: float | None = None
    test: str = ""
    p: float | None = None
    p_holm: float | None = None
    p_improve: float | None = None
    seeds_for_80: int | None = None
    verdict: str = ""
    is_complete: bool
    mark: str


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """One measure of one condition on one set, over its finished seeds.

    `benchmark` is the set's name, or `macro` for the mean over the sets, each counting the same.
    """

    condition: str
    is_control: bool
    benchmark: str
    measure: str
    n_seeds: int
    value: float
    ci_lo: float | None
    ci_hi: float | None
    mark: str


@dataclass(frozen=True, slots=True)
class PairRow:
    """One seed of a condition beside the same seed of the control, task by task, at the last gate.

    Of a rate alone. Tasks that had a fault on either side are left out.
    """

    condition: str
    seed: int
    step: int
    metric: str
    n_tasks: int
    both: int
    only_condition: int
    only_control: int


@dataclass(frozen=True, slots=True)
class MeasureRow:
    """One measure of training of one trial: its mean over the steps since the gate before.

    A measure that gates take has one value a gate; then `n_steps` is 1.
    """

    condition: str
    seed: int
    step: int
    metric: str
    n_steps: int
    value: float


Row = TrialRow | HistoryRow | EvalRow | GateRow | SummaryRow | BenchmarkRow | PairRow | MeasureRow

TABLES: dict[str, type[Row]] = {
    "trials": TrialRow,
    "history": HistoryRow,
    "evals": EvalRow,
    "gates": GateRow,
    "summary": SummaryRow,
}
"""Name of a table that every export has -> its row."""

BENCHMARKS = "benchmarks"
"""Name of the table of `BenchmarkRow`, which only a sweep with named evaluation sets has."""

ALL_TABLES: dict[str, type[Row]] = {**TABLES, BENCHMARKS: BenchmarkRow}
"""Name of any table -> its row."""

OK, INCOMPLETE = "ok", "incomplete"


def against(mark: str) -> str:
    """Return what a mark has against every verdict of its sweep; empty for nothing."""
    return "; ".join(word for word in mark.split("; ") if word not in (OK, INCOMPLETE))


def ends_of(trials: Sequence[TrialRow]) -> list[End]:
    """Return how the planned trials ended: what verdicts are made from."""
    return [
        End(
            condition=row.condition,
            is_control=row.is_control,
            seed=row.seed,
            status=TrialStatus(row.status),
            step=row.final_step or 0,
            planned=row.planned_steps,
            value=row.final,
            until=until_of(row.seeds_until),
            look=row.look,
        )
        for row in trials
    ]


def until_text(plan: SeedPlan | None) -> str:
    """Return seeds until decided as one cell: `start=3 most=12 block=1 effect=0.05`."""
    return "" if plan is None else " ".join(f"{k}={v!r}" for k, v in asdict(plan).items())


def until_of(text: str) -> SeedPlan | None:
    """Return what `until_text` wrote."""
    if not text:
        return None
    cells = dict(part.split("=") for part in text.split())
    start, most, block = (int(cells[name]) for name in ("start", "most", "block"))
    return SeedPlan(start, most, block, float(cells["effect"]))


def same_runs_of(trials: Sequence[TrialRow]) -> dict[str, list[str]]:
    """Return condition -> those that are the same run up to a factor."""
    return {row.condition: row.same_run_as.split("; ") for row in trials if row.same_run_as}


def mark_of(audit: Audit) -> str:
    """Return what every row says of its sweep: `ok`, or what stands against it."""
    return mark_of_counts(
        is_failed=audit.verdict is AuditVerdict.FAILED,
        is_confounded=bool(audit.confounded),
        is_whole=audit.finished >= audit.trials,
    )


def mark_of_counts(*, is_failed: bool, is_confounded: bool, is_whole: bool) -> str:
    """Return the same of an audit that is known by its outcome alone."""
    marks = (
        "audit failed" if is_failed else "",
        "confounded" if is_confounded else "",
        "" if is_whole else INCOMPLETE,
    )
    return "; ".join(mark for mark in marks if mark) or OK
