"""The plan of a sweep: its trials as they will run, and what they cost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType

from rltune.report.cost import Measured, TrialCost, trial_cost
from rltune.report.memory import PART_NOTES
from rltune.report.pilot import PILOT_STEPS, same_selection
from rltune.report.render import (
    duration,
    fits_columns,
    grid,
    indent,
    line,
    pairs,
    plural,
    quantity,
    size,
)
from rltune.spec.identity import diff_configs, flatten, is_excluded
from rltune.spec.judge_checks import judge_need
from rltune.spec.load import LoadedSweep
from rltune.spec.problems import show
from rltune.spec.schema_run import reserved_gpus
from rltune.types import TrialSpec


@dataclass(frozen=True, slots=True)
class Plan:
    """Every trial of a sweep with its cost."""

    loaded: LoadedSweep
    specs: tuple[TrialSpec, ...]
    costs: tuple[TrialCost, ...]
    measured: Measured | None


def make_plan(loaded: LoadedSweep, specs: Sequence[TrialSpec], measured: Measured | None) -> Plan:
    """Put the plan of a sweep together."""
    return Plan(loaded, tuple(specs), tuple(trial_cost(s, measured) for s in specs), measured)


def plan_view(plan: Plan) -> RenderableType:
    """Return the plan as text: the trials, what they share, what they cost."""
    loaded = plan.loaded
    return Group(
        line(
            f"{loaded.run_name}: {plural(len(plan.specs), 'trial')}, profile {loaded.profile}",
            "bold",
        ),
        line(),
        indent(_trials(plan)),
        line(),
        line("Cost of all trials, at most", "bold"),
        indent(_costs(plan)),
        line(),
        *_pilot(plan.loaded),
        line("Config of every trial, the keys above aside", "bold"),
        *(indent(line(text)) for text in _shared(plan.specs)),
    )


def _moving(specs: Sequence[TrialSpec]) -> list[str]:
    """Return the dotted keys in which any trial differs from the first, without the seed."""
    first = specs[0].config
    keys = (key for spec in specs[1:] for key in diff_configs(first, spec.config))
    return [key for key in dict.fromkeys(keys) if key != "seed"]


def _trials(plan: Plan) -> RenderableType:
    """Return a line per trial; settings with no room in it stand below, once a condition."""
    keys = _moving(plan.specs)
    settings = {spec.condition: _settings(spec, keys) for spec in plan.specs}
    if not fits_columns(settings.values()):
        table = grid(["condition", "sets"], whole=(0,))
        for condition, own in settings.items():
            table.add_row(condition, pairs(own))
        return Group(_trial_table(plan, []), line(), table)
    return _trial_table(plan, keys)


def _settings(spec: TrialSpec, keys: Sequence[str]) -> dict[str, object]:
    flat = flatten(spec.config)
    return {key: flat[key] for key in keys if key in flat}


def _trial_table(plan: Plan, keys: Sequence[str]) -> RenderableType:
    headers = ["trial", *(key.rpartition(".")[2] for key in keys), "time"]
    table = grid(headers, right=range(1, len(headers)), whole=(0,))
    for spec, cost in zip(plan.specs, plan.costs, strict=True):
        flat = flatten(spec.config)
        values = (show(flat[key]) if key in flat else "-" for key in keys)
        table.add_row(spec.trial_id, *values, duration(cost.wall_s))
    return table


def _costs(plan: Plan) -> RenderableType:
    table = grid(["", "", ""], right=(1,))
    table.show_header = False
    for name, amount, note in _cost_rows(plan):
        table.add_row(name, amount, note)
    return table


def _cost_rows(plan: Plan) -> Iterator[tuple[str, str, str]]:
    costs, first = plan.costs, plan.costs[0]

    def total(name: str) -> str:
        return quantity(sum(getattr(cost, name) for cost in costs))

    config = plan.specs[0].config
    yield "training steps", total("steps"), ""
    yield "rollouts", total("rollouts"), f"{quantity(first.rollouts // first.steps)} a step"
    yield "sampled tokens", total("max_tokens"), "if every response fills its limit"
    yield "optimiser steps", total("optimizer_steps"), "unless the filter drops whole mini-batches"
    yield "held-out gates", total("gates"), f"{config['gate']['tasks']} tasks each"
    yield from _judge_rows(plan)
    yield from _device_rows(config)
    yield from _memory_rows(plan)
    yield _time_row(plan)


def _device_rows(config: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield what a trial runs on."""
    wanted = config["resources"]
    engine = f"{config['policy']['model']}, {config['policy']['dtype']}, engine "
    note = f"a trial: {engine}{config['rollout']['engine']}"
    yield "cores", f"{wanted['cpus']:g}", note
    gpus = reserved_gpus(wanted)
    if gpus > wanted["gpus"]:
        yield "GPUs", f"{gpus:g}", "a trial: one of them is its engine's alone"
    elif gpus:
        note = "a trial" if gpus >= 1 else f"a trial: {gpus:.0%} of one GPU and of its memory"
        yield "GPUs", f"{gpus:g}", note


def _memory_rows(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Yield the memory of the trial that takes most, and its parts."""
    first, config = plan.costs[0], plan.specs[0].config
    plans = [cost.memory for cost in plan.costs if cost.memory is not None]
    if first.parameters is None or first.trained is None or not plans:
        yield "memory", "unknown", f"no config.json of {config['policy']['model']} on this machine"
        return
    largest = max(plans, key=lambda memory: memory.peak)
    count = f"{quantity(first.parameters)} parameters"
    if first.trained != first.parameters:
        count += f" + {quantity(first.trained)} trained in adapters"
    yield "memory", size(largest.peak), f"a trial: {count}"
    for name, amount in largest.parts.items():
        yield f"  {name.replace('_', ' ')}", size(amount), PART_NOTES[name]


def _judge_rows(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Yield the calls to a language-model judge, and whether its budget covers a trial."""
    asked = [(spec, need) for spec in plan.specs if (need := judge_need(spec.config))]
    if not asked:
        return
    spec, need = min(asked, key=lambda pair: pair[1].ends or pair[1].last_step + 1)
    llm = spec.config["attribution"]["llm"]
    note = f"up to {quantity(need.calls)} calls a trial, budget {quantity(llm['max_calls'])} calls "
    note += f"and {quantity(llm['max_tokens'])} tokens"
    if need.ends is not None:
        note += f": WARNING, judging ends at step {need.ends} of {need.last_step} ({need.by})"
    yield "judge calls", quantity(sum(own.calls for _, own in asked)), note


def _time_row(plan: Plan) -> tuple[str, str, str]:
    known = [cost.wall_s for cost in plan.costs if cost.wall_s is not None]
    if plan.measured is None or not known:
        return "time", "-", "not measured yet"
    source = f"one at a time, by {quantity(plan.measured.steps)} steps in {plan.measured.source}"
    if len(known) < len(plan.costs):
        source += f"; {len(plan.costs) - len(known)} trials were not measured"
    return "time", duration(sum(known)), source


def _pilot(loaded: LoadedSweep) -> Iterator[RenderableType]:
    """Yield what a moving filter does to pilot batches, where several conditions are one."""
    configs = {condition.label: condition.config for condition in loaded.conditions}
    flat = [flatten(config) for config in configs.values()]
    keys = [key for key in flat[0] if key.startswith("rollout_filter.")]
    if all(own.get(key) == flat[0][key] for own in flat for key in keys):
        return
    for labels in same_selection(configs):
        text = f"warning: {', '.join(labels)} keep the same groups in all of {PILOT_STEPS} pilot "
        text += "batches: they are one condition under several names. Choose values further apart, "
        text += "or rollout_filter.strategy: top_k, which counts groups."
        yield line(text, "yellow")
        yield line()


def _shared(specs: Sequence[TrialSpec]) -> Iterator[str]:
    """Yield one line per section with the keys that all trials have in common."""
    moving = set(_moving(specs))
    sections: dict[str, list[str]] = {}
    for key, value in flatten(specs[0].config).items():
        if key in moving or key == "seed":
            continue
        section, _, name = key.partition(".")
        mark = " (no effect on results)" if is_excluded(key) and section != "tracking" else ""
        text = f"{name}: {show(value)}{mark}" if name else show(value)
        sections.setdefault(section, []).append(text)
    for section, texts in sections.items():
        inner = ", ".join(texts)
        yield f"{section}: {{{inner}}}" if ": " in inner else f"{section}: {inner}"
