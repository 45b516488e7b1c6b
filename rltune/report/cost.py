"""What a sweep will cost, before it runs: counts, memory, and time where it was measured before."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltune.errors import StoreError
from rltune.report.folder import find_run, is_run_folder, read_folder, read_records
from rltune.report.memory import MemoryPlan, memory_plan, shape_of
from rltune.report.parameters import adapter_parameters, model_shape, parameter_count
from rltune.spec.knobs import updates_per_step
from rltune.spec.records import TrialRecord
from rltune.store.rundir import RunDir
from rltune.store.speed import speed_key, step_speeds
from rltune.types import TrialSpec


@dataclass(frozen=True, slots=True)
class TrialCost:
    """What one trial takes at most.

    Attributes:
        steps: Training steps.
        rollouts: Training episodes.
        max_tokens: Sampled training tokens if every response fills its limit.
        optimizer_steps: Optimiser steps of the policy, critic warm-up included, if no group drops.
        gates: Held-out evaluations, step 0 included.
        heldout_rollouts: Episodes of all of them.
        parameters: Of the policy without adapters; None when no local config.json tells.
        trained: Those of the policy that training changes: with LoRA the adapters'.
        memory: What it holds, part by part; None when parameters is.
        wall_s: Seconds by measured steps of an earlier run; None when there is none.

    """

    steps: int
    rollouts: int
    max_tokens: int
    optimizer_steps: int
    gates: int
    heldout_rollouts: int
    parameters: int | None
    trained: int | None
    memory: MemoryPlan | None
    wall_s: float | None


@dataclass(frozen=True, slots=True)
class Measured:
    """Step times of an earlier run.

    Attributes:
        source: Its run folder.
        steps: Training steps measured.
        step_s: Canonical JSON of the sections that decide the speed -> mean seconds of a step.

    """

    source: str
    steps: int
    step_s: Mapping[str, float]


def trial_cost(spec: TrialSpec, measured: Measured | None = None) -> TrialCost:
    """Return the cost of one trial."""
    config = spec.config
    rollout, steps = config["rollout"], int(config["budget"]["steps"])
    rollouts = steps * rollout["groups"] * rollout["group_size"]
    turns = config["env"].get("max_turns", math.inf)  # an env of one's own does not say
    episode = int(min(turns * rollout["max_response_tokens"], rollout["max_context"]))
    every = int(config["gate"]["every"])
    gates = 1 + math.ceil(steps / every)
    shape = model_shape(config["policy"]["model"], config["env"]["kind"])
    parameters, trained = _parameters(config, shape)
    step_s = measured.step_s.get(speed_key(config)) if measured is not None else None
    return TrialCost(
        steps=steps,
        rollouts=rollouts,
        max_tokens=rollouts * episode,
        optimizer_steps=steps * updates_per_step(config),
        gates=gates,
        heldout_rollouts=gates * int(config["gate"]["tasks"]),
        parameters=parameters,
        trained=trained,
        memory=(
            None
            if shape is None or parameters is None or trained is None
            else memory_plan(config, shape_of(shape), parameters=parameters, trained=trained)
        ),
        wall_s=None if step_s is None else step_s * steps,
    )


def _parameters(
    config: Mapping[str, Any], shape: Mapping[str, Any] | None
) -> tuple[int | None, int | None]:
    """Return the policy's parameters, and how many of them and its adapters are trained."""
    if shape is None:
        return None, None
    count, lora = parameter_count(shape), config["policy"]["lora"]
    if lora["rank"] == 0:
        return count, count
    return count, adapter_parameters(shape, rank=lora["rank"], targets=lora["targets"])


def measure(runs_dir: Path, run_name: str, sweep: str) -> Measured | None:
    """Return step times of an earlier run of a sweep: the same run folder, else the newest other.

    Folders that cannot be read are passed over: a plan must not fail on an old one.
    """
    others = sorted(
        (path for path in runs_dir.glob(f"{sweep}-????????") if is_run_folder(path)),
        key=lambda path: path.stat().st_mtime,
        reverse=True,
    )
    for path in (runs_dir / run_name, *others):
        try:
            records = read_records(read_folder(find_run(path, runs_dir))).records
        except StoreError:
            continue
        found = _measured(RunDir(path), records)
        if found is not None:
            return found
    return None


def _measured(run: RunDir, records: Sequence[TrialRecord]) -> Measured | None:
    speeds = step_speeds((record.spec.config, record.metrics) for record in records)
    means = {key: speed.step_s for key, speed in speeds.items()}
    steps = sum(speed.steps for speed in speeds.values())
    return Measured(str(run.path), steps, means) if means else None
