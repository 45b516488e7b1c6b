"""The cost of a plan as text: counts, what it runs on, memory, and time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.console import RenderableType

from rltune.comparability.judge_budget import judge_need
from rltune.forecast.cost import Measured, TrialCost, largest_of
from rltune.forecast.gpus import GPUS, names
from rltune.forecast.memory import PART_NOTES, MemoryPlan
from rltune.forecast.pass_memory import DTYPE_BYTES
from rltune.forecast.spread import Spread
from rltune.report.plan_service import service_rows
from rltune.report.render import duration, grid, quantity, size
from rltune.spec.keys import typed
from rltune.spec.model_name import service_model
from rltune.spec.schema.run import ranks_of, reserved_cpus, reserved_gpus
from rltune.store.prices import Price
from rltune.types import TrialSpec

Row = tuple[str, str, str]
_TRAINING = ("activations", "logits", "heap")
_COUNTS = ("", "", "two", "three", "four")


def cost_table(
    specs: Sequence[TrialSpec],
    costs: Sequence[TrialCost],
    measured: Measured | None,
    prices: Mapping[str, Price | None],
) -> RenderableType:
    """Return the cost of all trials, a row each."""
    table = grid(["", "", ""], right=(1,))
    table.show_header = False
    for name, amount, note in _rows(specs, costs, measured):
        table.add_row(name, amount, note)
    for name, amount, note in service_rows(specs, costs, measured, prices):
        table.add_row(name, amount, note)
    return table


def cost_data(cost: TrialCost) -> dict[str, Any]:
    """Return the cost of a trial as data, in bytes and seconds."""
    memory = cost.memory
    return {
        **asdict(replace(cost, memory=None, gpus=(), spread=None)),
        "gpus": [gpu.name for gpu in cost.gpus],
        "spread": cost.spread and _spread_data(cost.spread),
        "memory": memory and {"peak": memory.peak, **memory.parts},
    }


def _spread_data(spread: Spread) -> dict[str, Any]:
    return {**asdict(spread), "gpus": [gpu.name for gpu in spread.gpus]}


def _rows(
    specs: Sequence[TrialSpec], costs: Sequence[TrialCost], measured: Measured | None
) -> Iterator[Row]:
    first, config = costs[0], specs[0].config

    def total(name: str) -> str:
        return quantity(sum(getattr(cost, name) for cost in costs))

    yield "training steps", total("steps"), ""
    yield "rollouts", total("rollouts"), f"{quantity(first.rollouts // first.steps)} a step"
    yield "sampled tokens", total("max_tokens"), "if every response fills its limit"
    yield "optimiser steps", total("optimizer_steps"), "unless the filter drops whole mini-batches"
    if total("policy_updates") != total("optimizer_steps"):
        yield "policy updates", total("policy_updates"), "a critic warm-up moves no policy"
    yield "held-out gates", total("gates"), f"{config['gate']['tasks']} tasks each"
    yield from _judge_rows(specs)
    yield from _device_rows(config)
    yield from _memory_rows(costs, config)
    yield from _time_rows(costs, measured)


def _judge_rows(specs: Sequence[TrialSpec]) -> Iterator[Row]:
    """Yield the calls to a language-model judge, and whether its budget covers a trial."""
    asked = [(spec, need) for spec in specs if (need := judge_need(typed(spec.config)))]
    if not asked:
        return
    spec, need = min(asked, key=lambda pair: pair[1].ends or pair[1].last_step + 1)
    llm = spec.config["attribution"]["llm"]
    note = f"up to {quantity(need.calls)} calls a trial, budget {quantity(llm['max_calls'])} calls "
    note += f"and {quantity(llm['max_tokens'])} tokens"
    if need.ends is not None:
        note += f": WARNING, judging ends at step {need.ends} of {need.last_step} ({need.by})"
    yield "judge calls", quantity(sum(own.calls for _, own in asked)), note


def _device_rows(config: Mapping[str, Any]) -> Iterator[Row]:
    """Yield what a trial reserves."""
    model = config["policy"]["model"]
    what = f"{model}, {config['policy']['dtype']}, engine {config['rollout']['engine']}"
    if config["trainer"]["backend"] == "tinker":
        name = service_model(model, config["env"]["kind"])
        what = f"{name}, trained and sampled by a training service"
    yield "cores", f"{reserved_cpus(config):g}", f"a trial: {what}"
    gpus = reserved_gpus(config)
    engines = gpus - config["resources"]["gpus"]
    if engines:
        whose = "one of them is reserved for its engine"
        if engines > 1:
            whose = f"{engines:g} of them are reserved for its engines"
        yield "GPUs", f"{gpus:g}", f"a trial: {whose}"
    elif gpus:
        note = "a trial" if gpus >= 1 else f"a trial: {gpus:.0%} of one GPU and of its memory"
        yield "GPUs", f"{gpus:g}", note


def _memory_rows(costs: Sequence[TrialCost], config: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the memory of the trial that takes most, its parts, and the GPUs that hold it."""
    first, largest = costs[0], largest_of(costs)
    if largest is None or largest.memory is None:
        yield "memory", "unknown", f"no config.json of {config['policy']['model']} on this machine"
        return
    if config["trainer"]["backend"] == "tinker":
        yield "memory", size(largest.memory.fullest), "a trial: its program, no model"
        return
    count = f"{quantity(first.parameters or 0)} parameters"
    if first.trained != first.parameters:
        count += f" + {quantity(first.trained or 0)} trained in adapters"
    ranks = ranks_of(typed(config).resources)
    whose = "a trial" if ranks == 1 else f"the first of {ranks} ranks"
    yield "memory", size(largest.memory.fullest), f"{whose}: {count}"
    on_gpu = bool(config["resources"]["gpus"])
    turns = _turns(largest.memory)
    for name, amount in largest.memory.parts.items():
        note = PART_NOTES[name] + (f"; {turns}" if name in ("kv_cache", "engine") else "")
        if on_gpu and name == "program":
            note = "what CUDA holds for a process"
        yield f"  {name.replace('_', ' ')}", size(amount), note
    if largest.memory.shared_engine:
        adapter = (largest.trained or 0) * DTYPE_BYTES[config["policy"]["dtype"]]
        where = "on the first GPU, beside trials" if on_gpu else "beside trials"
        note = f"once, {where}: a base and an adapter; {size(adapter)} more for each other trial"
        yield "shared engine", size(largest.memory.shared_engine), note
    if on_gpu:
        yield from _gpu_rows(largest, ranks)


def _turns(memory: MemoryPlan) -> str:
    """Return whether what generates and what trains are there at the same time."""
    if memory.is_engine_apart:
        return "in a process, and on a GPU, of its own"
    if memory.is_engine_kept:
        return "stays while the trainer updates"
    count = sum(name in memory.parts for name in ("rounded", *_TRAINING))
    return f"takes turns with the next {_COUNTS[count]}"


def _gpu_rows(cost: TrialCost, ranks: int) -> Iterator[Row]:
    """Yield the GPUs that hold a trial, or several together, or what makes it smaller."""
    if cost.gpus:
        yield "  fits", "" if ranks == 1 else f"{ranks} x", names(cost.gpus)
        others = [gpu for gpu in GPUS if gpu not in cost.gpus]
        if others:
            largest = max(others, key=lambda gpu: gpu.memory)
            yield "  does not fit", "", f"{names([largest])} and smaller"
        yield from _spread_rows(cost)
        return
    most = size(max(gpu.memory for gpu in GPUS))
    yield "  fits", "", f"no known GPU: the largest has {most}. It would take"
    for setting, peak in cost.savings:
        yield "", size(peak), f"with --set {setting}"
    yield from _spread_rows(cost)


def _spread_rows(cost: TrialCost) -> Iterator[Row]:
    """Yield the common GPUs that hold a trial together, where it takes a rare one alone."""
    if cost.spread is None:
        return
    sets = " ".join(f"--set {key}={value}" for key, value in cost.spread.settings.items())
    yield "  fits", f"{cost.spread.count} x", f"{names(cost.spread.gpus, most=1)} with {sets}"


def _time_rows(costs: Sequence[TrialCost], measured: Measured | None) -> Iterator[Row]:
    """Yield the time of all trials: measured by an earlier run, else unknown."""
    known = [cost.wall_s for cost in costs if cost.wall_s is not None]
    if measured is not None and known:
        source = f"one at a time, by {quantity(measured.steps)} steps in {measured.source}"
        if len(known) < len(costs):
            source += f"; {len(costs) - len(known)} trials were not measured"
        yield "time", duration(sum(known)), source
        return
    yield "time", "unknown", "not measured yet; the first run of this profile measures it"
