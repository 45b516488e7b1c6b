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
    """The state of one trial."""

    trial_id: str  # its folder's name
    condition: str  # label of its axis value
    seed: int
    is_control: bool  # whether it belongs to the control condition
    status: TrialStatus  # what its files prove; without a living driver, interrupted
    step: int | None  # last training step with metrics; None before the gate at step 0
    steps: int  # training steps planned
    gates: tuple[Gate, ...]  # its held-out evaluations so far, oldest first
    base: float | None  # metric of the gate at step 0
    last: float | None  # metric of the newest gate
    last_gate: int | None  # step of that gate
    best_step: int | None  # step that the gate chose; None before the end
    tokens_per_s: float | None  # newest sampling speed
    step_s: float | None  # median seconds of the last training steps, without their gates
    gate_s: float | None  # median seconds of a gate
    eta_s: float | None  # seconds that the rest takes at this speed; None when it does not run
    silent_s: float | None  # seconds since the last line of metrics; None when it does not run
    cost: Cost  # what it consumed so far
    reason: str  # why it failed or stopped; empty otherwise
    log: str  # its log file
    judged: Judged  # episodes that a judge was asked about, and those that it judged
    scored: str = ""  # tasks that the newest gate scored, `14/32`; empty where it scored all
    warnings: tuple[str, ...] = ()  # of its model card

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
    """The state of a sweep."""

    path: str  # its run folder
    name: str
    title: str
    metric_name: str  # the metric of the gates
    driver: DriverInfo | None  # who drives it now; None when nobody does
    elapsed_s: float | None  # seconds since its driver started; None when nobody drives it
    eta_s: float | None  # seconds until all trials end; None if unknown or nobody drives it
    cost: Cost  # what its trials consumed so far, children and repetitions left out
    scale: tuple[float, float] | None  # range of the metric over all gates; None before the first
    size_bytes: int  # disk that its folder takes
    trials: tuple[TrialState, ...]  # one per trial, in the order of the plan
    derived: tuple[DerivedState, ...] = ()  # its children and repetitions

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
