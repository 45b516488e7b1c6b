"""The plan of a sweep: its trials as they will run, and what they cost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType

from rltune.analysis.power import design_of
from rltune.forecast.cost import Measured, TrialCost, trial_cost
from rltune.forecast.filter_simulation import SIMULATED_STEPS, same_selection
from rltune.report.plan_cost import cost_data, cost_table
from rltune.report.plan_power import looks_view
from rltune.report.plan_service import plan_money
from rltune.report.render import (
    duration,
    fits_columns,
    grid,
    indent,
    line,
    pairs,
    plural,
)
from rltune.spec.identity import diff_configs, flatten, is_excluded
from rltune.spec.load import LoadedSweep
from rltune.spec.problems import show
from rltune.store.prices import Price
from rltune.types import TrialSpec

_NO_PRICES: Mapping[str, Price | None] = {}


@dataclass(frozen=True, slots=True)
class Plan:
    """Every trial of a sweep with its cost."""

    loaded: LoadedSweep
    specs: tuple[TrialSpec, ...]
    costs: tuple[TrialCost, ...]
    measured: Measured | None
    prices: Mapping[str, Price | None]  # condition -> those of its training service


def make_plan(
    loaded: LoadedSweep,
    specs: Sequence[TrialSpec],
    measured: Measured | None,
    prices: Mapping[str, Price | None] = _NO_PRICES,
) -> Plan:
    """Put the plan of a sweep together.

    Args:
        loaded: The sweep.
        specs: Its trials.
        measured: An earlier run.
        prices: Condition -> those of its training service.

    """
    costs = (trial_cost(spec, measured, prices.get(spec.condition)) for spec in specs)
    return Plan(loaded, tuple(specs), tuple(costs), measured, prices)


def cost_json(plan: Plan) -> dict[str, Any]:
    """Return what the sweep costs as data: every trial by its id, and how it was measured."""
    measured = plan.measured
    return {
        "measured": measured and {"source": measured.source, "steps": measured.steps},
        "trials": {
            spec.trial_id: cost_data(cost)
            for spec, cost in zip(plan.specs, plan.costs, strict=True)
        },
    }


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
        indent(cost_table(plan.specs, plan.costs, plan.measured, plan.prices)),
        line(),
        looks_view(design_of(loaded)),
        *_filter_warnings(plan.loaded),
        line("Config of every trial, except the keys above", "bold"),
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
    is_priced = any(plan.prices.values())
    headers = ["trial", *(key.rpartition(".")[2] for key in keys), "time"]
    headers += ["cost"] * is_priced
    table = grid(headers, right=range(1, len(headers)), whole=(0,))
    for spec, cost in zip(plan.specs, plan.costs, strict=True):
        flat = flatten(spec.config)
        values = (show(flat[key]) if key in flat else "-" for key in keys)
        paid = [plan_money(cost)] * is_priced
        table.add_row(spec.trial_id, *values, duration(cost.wall_s), *paid)
    return table


def _filter_warnings(loaded: LoadedSweep) -> Iterator[RenderableType]:
    """Yield a warning for conditions whose filters keep the same groups in simulated batches."""
    configs = {condition.label: condition.config for condition in loaded.conditions}
    flat = [flatten(config) for config in configs.values()]
    keys = [key for key in flat[0] if key.startswith("rollout_filter.")]
    if all(own.get(key) == flat[0][key] for own in flat for key in keys):
        return
    for labels in same_selection(configs):
        text = f"warning: {', '.join(labels)} keep the same groups in all of {SIMULATED_STEPS} "
        text += "simulated batches: they are one condition under several names. Choose values "
        text += "further apart, or rollout_filter.strategy: top_k, which counts groups."
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
