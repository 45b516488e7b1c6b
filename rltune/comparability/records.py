"""One trial as the audit reads it from its folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rltune.types import SeedPlan, TrialResult, TrialSpec, TrialStatus


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One trial as its folder tells it."""

    spec: TrialSpec  # spec.json
    provenance: Mapping[str, Any]  # provenance.json; empty before the trial starts
    # Lines of metrics.jsonl: step 0 (the first gate), then one a training step.
    metrics: tuple[Mapping[str, Any], ...] = ()
    heldout: tuple[Mapping[str, Any], ...] = ()  # lines of heldout.jsonl: one a gate
    result: TrialResult | None = None  # the DONE marker, if there is one
    failure: Mapping[str, Any] | None = None  # the FAILED marker, if there is one
    until: SeedPlan | None = None  # of its sweep: seeds until decided
    # seeds planned at the first look that counted it; None before one did, and for the control
    look: int | None = None

    @property
    def has_started(self) -> bool:
        """Whether anything was recorded."""
        return bool(self.provenance or self.metrics or self.result or self.failure)

    @property
    def last_step(self) -> int:
        """The last training step with metrics; 0 without any."""
        return max((row["step"] for row in self.metrics), default=0)

    @property
    def planned_steps(self) -> int:
        """The training steps that the config asks for."""
        return int(self.spec.config["budget"]["steps"])

    @property
    def task_hashes(self) -> Mapping[int, str]:
        """Training step -> hash of the task ids that it drew."""
        return {
            row["step"]: row["rollout/task_hash"]
            for row in self.metrics
            if row["step"] > 0 and "rollout/task_hash" in row
        }

    @property
    def task_stream(self) -> Mapping[int, str]:
        """Place in the stream of tasks, from 1 -> short digest of the task that was drawn there."""
        lists = [row.get("rollout/task_digests") for row in self.metrics if row["step"] > 0]
        if not all(isinstance(tasks, str) for tasks in lists):
            return {}
        return dict(enumerate((task for tasks in lists for task in str(tasks).split()), start=1))

    @property
    def first_sample(self) -> str:
        """Digest of the tokens sampled in step 1, before any update; empty in older records."""
        return str(self._first.get("rollout/sampled_hash", ""))

    @property
    def learned(self) -> tuple[tuple[str, float], ...]:
        """Of each training step: digest of its sampled tokens, and gradient norm before clipping.

        Empty where a step did not record both.
        """
        steps = [row for row in self.metrics if row["step"] > 0]
        if not all(row.get("rollout/sampled_hash") and "actor/grad_norm" in row for row in steps):
            return ()
        return tuple(
            (str(row["rollout/sampled_hash"]), float(row["actor/grad_norm"])) for row in steps
        )

    @property
    def first_faults(self) -> float:
        """Episodes of step 1 in which something outside the policy failed."""
        return float(self._first.get("rollout/fault_count", 0.0))

    @property
    def _first(self) -> Mapping[str, Any]:
        return next((row for row in self.metrics if row["step"] == 1), {})

    @property
    def gate_steps(self) -> list[int]:
        """Steps at which the held-out gate must have run: 0, every n, and the last one.

        A trial that is not done owes no gate at the step where it happens to be.
        """
        if not self.metrics:
            return []
        every, last = int(self.spec.config["gate"]["every"]), self.last_step
        is_done = self.result is not None and self.result.status is TrialStatus.DONE
        steps = {step for step in range(0, last + 1, every) if step < last or is_done}
        return sorted(steps | ({last} if is_done else set()))
