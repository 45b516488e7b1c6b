"""What a sweep will cost, before it runs: counts, memory, and time where it was measured before."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from rltune.comparability.knobs import rollouts_per_step, updates_per_step, warmup_steps
from rltune.comparability.records import TrialRecord
from rltune.errors import StoreError
from rltune.forecast.gpus import Gpu, gpus_that_hold
from rltune.forecast.memory import MemoryPlan, client_plan
from rltune.forecast.model_shapes import shape_of
from rltune.forecast.parameters import adapter_parameters, model_shape, parameter_count
from rltune.forecast.pass_memory import sampled_tokens
from rltune.forecast.ranks import rank_plan
from rltune.forecast.service import priced, scaled, service_need, usage_of_steps
from rltune.forecast.spread import Spread, is_common, spread_of
from rltune.spec.identity import flatten
from rltune.spec.keys import nested, typed
from rltune.spec.schema.trial import TrialConfig, to_plain
from rltune.store.prices import Price
from rltune.store.run_folder import find_run, is_run_folder, read_folder, read_records
from rltune.store.rundir import RunDir
from rltune.store.service_usage import ServiceUsage
from rltune.store.speed import speed_key, step_speeds
from rltune.types import TrialSpec

_SAVERS = (
    ("optim.gradient_checkpointing", True),
    ("rollout.vllm.sleep", True),
    ("optim.micro_batch_size", 1),
    ("critic.backbone", "policy"),
    ("policy.lora.rank", 64),
)
"""Settings that may save memory; those that change results by rounding only come first."""
_LEAST_SAVING = 0.02
"""Share of the peak that a setting must save to be named."""


@dataclass(frozen=True, slots=True)
class TrialCost:
    """What one trial takes at most."""

    steps: int  # training steps
    rollouts: int  # training episodes
    max_tokens: int  # sampled training tokens if every response fills its limit
    optimizer_steps: int  # mini-batches gone through, critic warm-up included, if no group drops
    policy_updates: int  # those that update the policy
    gates: int  # held-out evaluations, step 0 included
    heldout_rollouts: int  # episodes of all of them
    parameters: int | None = None  # of the policy without adapters; None if unknown here
    trained: int | None = None  # those of the policy that training changes: with LoRA the adapters'
    memory: MemoryPlan | None = None  # what it holds here, part by part; None if unknown
    wall_s: float | None = None  # seconds by measured steps of an earlier run; None without one
    gpus: tuple[Gpu, ...] = ()  # that hold it, the smallest first; empty for a trial on a CPU
    savings: tuple[tuple[str, int], ...] = ()  # where no GPU does: setting -> bytes with it
    spread: Spread | None = None  # where no common GPU does: on several; None: on none, or no need
    service: ServiceUsage | None = None  # most asked of a training service; None: nothing, unknown
    expected: ServiceUsage | None = None  # the same by an earlier run; None without one


@dataclass(frozen=True, slots=True)
class Measured:
    """Step times of an earlier run."""

    source: str  # its run folder
    steps: int  # training steps measured
    step_s: Mapping[str, float]  # `speed_key` of a config -> mean seconds of a step
    # the same -> what was asked of a training service, and in how many steps
    service: Mapping[str, tuple[ServiceUsage, int]] = field(default_factory=dict)


def largest_of(costs: Iterable[TrialCost]) -> TrialCost | None:
    """Return the trial that takes most memory; None when that of none is known."""
    known = ((cost.memory.fullest, cost) for cost in costs if cost.memory is not None)
    return max(known, key=itemgetter(0), default=(0, None))[1]


def trial_cost(
    spec: TrialSpec, measured: Measured | None = None, price: Price | None = None
) -> TrialCost:
    """Return the cost of one trial; `price` is that of its training service."""
    config = typed(spec.config)
    steps = config.budget.steps
    rollouts, updates = steps * rollouts_per_step(config), updates_per_step(config)
    gates = 1 + math.ceil(steps / config.gate.every)
    step_s = measured.step_s.get(speed_key(spec.config)) if measured is not None else None
    cost = TrialCost(
        steps=steps,
        rollouts=rollouts,
        max_tokens=rollouts * sampled_tokens(config),
        optimizer_steps=steps * updates,
        policy_updates=(steps - warmup_steps(config)) * updates,
        gates=gates,
        heldout_rollouts=gates * config.gate.tasks,
        wall_s=None if step_s is None else step_s * steps,
    )
    model = model_shape(config.policy.model, config.env.kind)
    if config.trainer.backend == "tinker":
        parameters, trained = _parameters(config, model) if model is not None else (None, None)
        cost = replace(cost, parameters=parameters, trained=trained, memory=client_plan())
        return _with_service(cost, spec, config, measured, price)
    return cost if model is None else _with_model(cost, config, model)


def _with_service(
    cost: TrialCost,
    spec: TrialSpec,
    config: TrialConfig,
    measured: Measured | None,
    price: Price | None,
) -> TrialCost:
    """Return a cost with what the trial asks of its training service."""
    if need := service_need(config):
        cost = replace(cost, service=priced(need, price))
    known = measured.service.get(speed_key(spec.config)) if measured is not None else None
    if known is None:
        return cost
    usage, steps = known
    expected = priced(scaled(usage, config.budget.steps / steps), price)
    return replace(cost, expected=expected)


def _with_model(cost: TrialCost, config: TrialConfig, model: Mapping[str, Any]) -> TrialCost:
    """Return a cost with what follows from the config.json of the model."""
    parameters, trained = _parameters(config, model)
    if parameters is None or trained is None:
        return replace(cost, parameters=parameters, trained=trained)
    shape = shape_of(model)
    memory = rank_plan(config, shape, parameters=parameters, trained=trained)
    cost = replace(cost, parameters=parameters, trained=trained, memory=memory)
    share = min(1.0, config.resources.gpus)  # each rank has a GPU of its own
    if not share:
        return cost
    gpus = gpus_that_hold(memory.fullest, share=share)
    if share == 1.0 and not any(is_common(gpu) for gpu in gpus):
        spread = spread_of(config, shape, parameters=parameters, trained=trained)
        cost = replace(cost, spread=spread)
    savings = () if gpus else tuple(_savings(config, model, memory.fullest))
    return replace(cost, gpus=gpus, savings=savings)


def _savings(config: TrialConfig, model: Mapping[str, Any], peak: int) -> Iterator[tuple[str, int]]:
    """Yield each setting that would save memory, and the bytes that a trial would then take."""
    flat = flatten(to_plain(config))
    for key, value in _SAVERS:
        changed = typed(nested({**flat, key: value}))
        parameters, trained = _parameters(changed, model)
        if parameters is None or trained is None:
            continue
        less = rank_plan(changed, shape_of(model), parameters=parameters, trained=trained).fullest
        if less < peak * (1 - _LEAST_SAVING):
            yield f"{key}={str(value).lower()}", less


def _parameters(config: TrialConfig, shape: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the policy's parameters, and how many of them and its adapters are trained."""
    count, lora = parameter_count(shape), config.policy.lora
    if lora.rank == 0:
        return count, count
    return count, adapter_parameters(shape, rank=lora.rank, targets=lora.targets)


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
        if measured := _measured(RunDir(path), records):
            return measured
    return None


def _measured(run: RunDir, records: Sequence[TrialRecord]) -> Measured | None:
    speeds = step_speeds((record.spec.config, record.metrics) for record in records)
    means = {key: speed.step_s for key, speed in speeds.items()}
    steps = sum(speed.steps for speed in speeds.values())
    asked = usage_of_steps((record.spec.config, record.metrics) for record in records)
    return Measured(str(run.path), steps, means, asked) if means else None
