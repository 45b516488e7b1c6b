"""The faults by name. Each function injects one into a sweep and returns the outcome.

Each returns what must be true as named checks; `run.py` adds the ones that always hold: the same
command ends the sweep, nothing finished is lost or runs twice, every number is that of an
undisturbed sweep, no process is left.
"""

import signal
from collections.abc import Callable, Mapping

from custom import hanging_score, interrupted_score, raising_score
from disk import disk_full, read_only
from files import (
    corrupt_config,
    corrupt_marker,
    corrupt_ray_state,
    flip,
    half,
    torn_checkpoint,
    torn_table,
)
from finding import Finding
from processes import kill_driver, kill_ray, kill_worker, out_of_memory, signalled, two_drivers
from ranks import RANKS, kill_driver_of_ranks, kill_first_rank, kill_rank, stop_rank
from sandbox import Sandbox
from shared_engine import SHARED, kill_driver_of_shared_engine, kill_shared_engine
from world import changed_code, clock_jump, hanging_judge, hanging_retriever, not_a_number

CASES: dict[str, tuple[Callable[[Sandbox], Finding], Mapping[str, object]]] = {
    "SIGINT to the driver": (signalled(signal.SIGINT), {}),
    "SIGTERM to the driver": (signalled(signal.SIGTERM), {}),
    "SIGHUP to the driver": (signalled(signal.SIGHUP), {}),
    "SIGKILL of the driver": (kill_driver, {}),
    "SIGKILL of a trial's process": (kill_worker, {}),
    "SIGKILL of Ray's daemon": (kill_ray, {}),
    "SIGKILL of a rank": (kill_rank, RANKS),
    "SIGSTOP of a rank": (stop_rank, RANKS),
    "SIGKILL of a trial's first rank": (kill_first_rank, RANKS),
    "SIGKILL of the driver, two ranks": (kill_driver_of_ranks, RANKS),
    "SIGKILL of a shared engine": (kill_shared_engine, SHARED),
    "SIGKILL of the driver, shared engine": (kill_driver_of_shared_engine, SHARED),
    "out of memory": (out_of_memory, {}),
    "disk full": (disk_full, {}),
    "read-only folder": (read_only, {}),
    "half-written checkpoint": (torn_checkpoint(half), {}),
    "one bit of a checkpoint flipped": (torn_checkpoint(flip), {}),
    "half-written DONE marker": (corrupt_marker, {}),
    "half-written config": (corrupt_config, {}),
    "torn lineage, ledger and metrics": (torn_table, {}),
    "corrupt Ray state": (corrupt_ray_state, {}),
    "NaN loss": (not_a_number, {"optim.lr": 1e30}),
    "judge that hangs": (hanging_judge, {}),
    "retriever that hangs": (hanging_retriever, {}),
    "custom score that raises": (raising_score, {}),
    "custom score that hangs": (hanging_score, {}),
    "SIGINT while a custom score hangs": (interrupted_score, {}),
    "two drivers on one folder": (two_drivers, {}),
    "clock jumps": (clock_jump, {}),
    "code changed between launches": (changed_code, {}),
}
"""Name of the fault -> its function, and the config keys that it needs."""
