"""Records of the state of a run folder: progress, cost and time left of its trials."""

from dataclasses import dataclass
from typing import Any

from rltune.analysis.usage import Cost
from rltune.comparability.judged import Judged
from rltune.store.files import to_json
from rltune.store.lock import DriverInfo
from rltune.types import TrialStatus

FORMAT = "rltune-status-1"


@dataclass(frozen=True, slots=True)
class Gate:
    """One held-out evaluation: the training step that it came after, and the metric."""

    step: int
    value: float


@dataclass(frozen=True, slots=True)
class TrialState:
    """The state of one trial.

    Attributes:
        trial_id: Its folder's name.
        condition: Label of its axis value.
        seed: Its seed.
        is_control: Whether it belongs to the control condition.
        status: What its files prove; a trial without a living driver is interrupted, not running.
        step: Last training step with metrics; None before the gate at step 0.
        steps: Training steps planned.
        gates: Its held-out evaluations so far, oldest first.
        base: Metric of the gate at step 0.
        last: Metric of the newest gate.
        last_gate: Step of that gate.
        best_step: Step that the gate chose; None before the end.
        tokens_per_s: Newest sampling speed.
        step_s: Median seconds of the last training steps, without their gates.
        gate_s: Median seconds of a gate.
        eta_s: Seconds that the rest takes at this speed; None when it does not run.
        silent_s: Seconds since the last line of metrics; None when it does not run.
        cost: What it consumed so far.
        reason: Why it failed or stopped; empty otherwise.
        log: Its log file.
        judged: Episodes that a judge was asked about, and those that it judged.
        scored: Tasks that the newest gate scored, `14/32`; empty where it scored all.
        warnings: What its card warns of: training success that rose while held-out success fell.

    """

    trial_id: str
    condition: str
    seed: int
    is_control: bool
    status: TrialStatus
    step: int | None
    steps: int
    gates: tuple[Gate, ...]
    base: float | None
    last: float | None
    last_gate: int | None
    best_step: int | None
    tokens_per_s: float | None
    step_s: float | None
    gate_s: float | None
    eta_s: float | None
    silent_s: float | None
    cost: Cost
    reason: str
    log: str
    judged: Judged
    scored: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name for readers: condition and seed."""
        return f"{self.condition}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class DerivedState:
    """The state of a trial outside the comparison: a child or a rerun."""

    kind: str  # `child` or `rerun`
    parent: str  # trial id of what it was made from
    note: str  # what a child changes, or what comparing a repetition with its original found
    trial: TrialState  # where it is


@dataclass(frozen=True, slots=True)
class SweepState:
    """The state of a sweep.

    Attributes:
        path: Its run folder.
        name: Its name.
        title: Its title.
        metric_name: The metric of the gates.
        driver: Who drives it now; None when nobody does.
        elapsed_s: Seconds since its driver started; None when nobody drives it.
        eta_s: Seconds until all trials ended at the speed so far; None when nobody drives it or
            nothing is measured yet.
        cost: What its trials consumed so far, children and repetitions left out.
        scale: Smallest and largest metric of all gates of all trials; None before the first.
        size_bytes: Disk that its folder takes.
        trials: One a trial, in the order of the plan.
        derived: Its children and repetitions.

    """

    path: str
    name: str
    title: str
    metric_name: str
    driver: DriverInfo | None
    elapsed_s: float | None
    eta_s: float | None
    cost: Cost
    scale: tuple[float, float] | None
    size_bytes: int
    trials: tuple[TrialState, ...]
    derived: tuple[DerivedState, ...] = ()

    def count(self, *statuses: TrialStatus) -> int:
        """Return how many trials have one of these statuses."""
        return sum(trial.status in statuses for trial in self.trials)

    @property
    def has_failed(self) -> bool:
        """Whether a trial of the sweep failed or diverged."""
        return any(trial.status.is_failure for trial in self.trials)


def state_json(state: SweepState) -> dict[str, Any]:
    """Return a state as plain data, the names of its fields as keys: `rltune status --json`."""
    counts = {status.value: n for status in TrialStatus if (n := state.count(status))}
    return {"format": FORMAT, "counts": counts, **to_json(state)}
