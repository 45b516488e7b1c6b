"""Planned and used memory of each condition."""

from collections.abc import Sequence
from dataclasses import dataclass

from rltune.comparability.records import TrialRecord
from rltune.forecast.cost import trial_cost
from rltune.forecast.memory import PROGRAM_BYTES, MemoryPlan

GIB = 2**30
ON_GPU, IN_PROCESS = "perf/max_memory_allocated_gb", "perf/max_rss_gb"


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Peak memory of the trials of one condition."""

    condition: str  # its label
    where: str  # `GPU` for what torch had allocated there, `process` for a process as a whole
    used: int  # bytes
    planned: int | None  # bytes of the same; None when the model's shape is not known here

    @property
    def share(self) -> float | None:
        """What was used of what was planned."""
        return self.used / self.planned if self.planned else None


def memory_uses(records: Sequence[TrialRecord]) -> tuple[MemoryUse, ...]:
    """Return a row for every condition of which memory was recorded, in order of appearance."""
    rows: dict[str, MemoryUse] = {}
    for record in records:
        name = next((key for key in (ON_GPU, IN_PROCESS) if _most(record, key)), None)
        if name is None:
            continue
        used, plan = int(_most(record, name) * GIB), trial_cost(record.spec).memory
        where = "GPU" if name == ON_GPU else "process"
        planned = None if plan is None else _comparable(plan, where, is_own=_has_own(record))
        row = MemoryUse(record.spec.condition, where, used, planned)
        best = rows.get(row.condition)
        if best is None or best.used < row.used:
            rows[row.condition] = row
    return tuple(rows.values())


def _most(record: TrialRecord, name: str) -> float:
    return max((float(row[name]) for row in record.metrics if name in row), default=0.0)


def _has_own(record: TrialRecord) -> bool:
    """Return whether the trial's engine has a process of its own."""
    engine: str = record.spec.config["resources"].get("engine", "shared")
    return engine == "own"


def _comparable(plan: MemoryPlan, where: str, *, is_own: bool) -> int:
    """Return the planned bytes of what was measured: the trial's own process.

    torch does not count a GPU's context. On a CPU the plan is of one machine's memory, which an
    engine in a process of its own shares.
    """
    if where == "GPU":
        return plan.peak - plan.program
    return plan.peak - (plan.engine + plan.program - PROGRAM_BYTES if is_own else 0)
