"""The comparability proof as text: what differs, what is held, what each rule found."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from rltune.comparability.distinct import pairs_to_probe
from rltune.comparability.findings import RULES, ComparabilityReport, Finding, Severity
from rltune.comparability.protocol import check_protocol
from rltune.report.render import (
    finding,
    fits_columns,
    grid,
    indent,
    line,
    pairs,
    plural,
    rules_table,
)
from rltune.spec.custom_code import custom_code
from rltune.spec.identity import flatten
from rltune.spec.load import LoadedSweep
from rltune.spec.problems import show
from rltune.store.files import to_json

STATIC_RULES = tuple(rule for rule in RULES if rule.startswith("S"))


def check_json(
    sweeps: Sequence[LoadedSweep],
    reports: Sequence[ComparabilityReport],
    shared: Sequence[Finding] | None = None,
) -> dict[str, Any]:
    """Return what `rltune check` found as JSON: the proof of each sweep, and S9 of them all.

    `shared` is what S9 found; None: sweeps that are no study are asked.
    """
    if shared is None:
        shared = check_protocol(sweeps)
    return {
        "ok": all(report.ok for report in reports) and not _errors(shared),
        "sweeps": [_sweep_json(*pair) for pair in zip(sweeps, reports, strict=True)],
        "protocol": to_json(shared),
    }


def _errors(findings: Sequence[Finding]) -> list[Finding]:
    return [item for item in findings if item.severity is Severity.ERROR]


def _sweep_json(loaded: LoadedSweep, report: ComparabilityReport) -> dict[str, Any]:
    return {
        "path": str(loaded.path),
        "name": loaded.spec.name,
        "run": loaded.run_name,
        "profile": loaded.profile,
        "seeds": list(loaded.seeds),
        "until": None if loaded.until is None else to_json(loaded.until),
        "axis": loaded.spec.axis.key,
        "why": loaded.spec.axis.why,
        "coupled": {item.key: item.rule for item in loaded.spec.axis.coupled},
        "held": held_values(loaded),
        "custom_code": dict(custom_code(loaded)),
        "ok": report.ok,
        "conditions": to_json(report.axis_table),
        "errors": to_json(report.errors),
        "warnings": to_json(report.warnings),
    }


def held_values(loaded: LoadedSweep) -> dict[str, Any]:
    """Return dotted held key -> its value."""
    flat = flatten(loaded.control.config)
    return {key: flat[key] for key in loaded.held_keys if key in flat}


def held_text(key: str, value: object, configs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a held value, and the conditions (label -> config) whose variant has no such key."""
    lacking = [label for label, config in configs.items() if key not in flatten(config)]
    return show(value) + (f" (no key of {', '.join(lacking)})" if lacking else "")


def _held(loaded: LoadedSweep) -> Iterator[str]:
    configs = {condition.label: condition.config for condition in loaded.conditions}
    for key, value in held_values(loaded).items():
        yield f"{key}: {held_text(key, value, configs)}"


def proof_view(loaded: LoadedSweep, report: ComparabilityReport) -> RenderableType:
    """Return the proof of one sweep."""
    findings = (*report.errors, *report.warnings)
    parts: list[RenderableType] = [
        *_head(loaded),
        line(),
        *_axis(loaded),
        indent(_conditions(report)),
        line(),
        line("Held in every condition", "bold"),
        indent(line(", ".join(_held(loaded)))),
        line(),
        *_custom(loaded),
        line("Rules", "bold"),
        indent(_rules(findings, loaded.protocol is not None)),
        line(),
        *_found(findings),
        verdict(loaded, errors=len(report.errors)),
    ]
    return Group(*parts)


def _head(loaded: LoadedSweep) -> Iterator[RenderableType]:
    conditions, seeds = len(loaded.conditions), len(loaded.seeds)
    yield line(f"{loaded.path}: {loaded.spec.title}", "bold")
    yield indent(line(loaded.spec.question))
    span, most = ", ".join(map(str, loaded.seeds)), ""
    if loaded.until is not None:
        span, most = f"{loaded.until.start} first, then until decided", "at most "
    count = (
        f"{plural(conditions, 'condition')} x {most}{plural(seeds, 'seed')} "
        f"({span}) = {most}{plural(conditions * seeds, 'trial')}"
    )
    protocol = f", protocol {loaded.protocol.name}" if loaded.protocol is not None else ""
    yield indent(line(f"{count}, profile {loaded.profile}{protocol}"))


def _axis(loaded: LoadedSweep) -> Iterator[RenderableType]:
    axis = loaded.spec.axis
    yield Text.assemble(("Axis", "bold"), f" {axis.key}")
    if axis.why is not None:
        yield indent(line(f"one intervention, because {axis.why}"))
    for item in axis.coupled:
        yield indent(line(f"coupled {item.key} = {item.rule}, because {item.why}"))


def _custom(loaded: LoadedSweep) -> Iterator[RenderableType]:
    """Yield the custom code that the sweep runs: a check has already imported it."""
    if found := custom_code(loaded):
        yield line("Runs custom code (--no-custom-code refuses it)", "bold")
        yield from (indent(line(f"{key}: {path}")) for key, path in found)
        yield line()


def _conditions(report: ComparabilityReport) -> RenderableType:
    """Return the diff table: a line per condition, a column per key that moves, if they fit."""
    if not fits_columns(row.settings for row in report.axis_table):
        table = grid(["condition", "", "sets"], whole=(0, 1))
        for row in report.axis_table:
            mark = "control" if row.is_control else ""
            style = "" if row.is_control else "cyan"
            table.add_row(row.condition, mark, Text(pairs(row.settings), style=style))
        return table
    keys = list(dict.fromkeys(key for row in report.axis_table for key in row.settings))
    control = next(row for row in report.axis_table if row.is_control)
    names = [key.rpartition(".")[2] for key in keys]
    headers = names if len(set(names)) == len(names) else keys
    table = grid(["condition", *headers, ""], right=range(1, len(keys) + 1))
    for row in report.axis_table:
        values = [
            Text(
                show(row.settings[key]) if key in row.settings else "-",
                style=_style(row.settings, control.settings, key),
            )
            for key in keys
        ]
        table.add_row(row.condition, *values, "control" if row.is_control else "")
    return table


def _style(settings: Mapping[str, Any], control: Mapping[str, Any], key: str) -> str:
    return "" if settings.get(key) == control.get(key) else "cyan"


def _rules(findings: Sequence[Finding], has_protocol: bool) -> RenderableType:
    rules = [rule for rule in STATIC_RULES if rule != "S9" or has_protocol]
    return rules_table(rules, findings)


def _found(findings: Sequence[Finding]) -> Iterator[RenderableType]:
    if findings:
        yield line("Findings", "bold")
        yield from (indent(finding(item)) for item in findings)
        yield line()


def verdict(loaded: LoadedSweep, *, errors: int) -> RenderableType:
    """Return the sentence that the proof comes to."""
    if errors:
        return line(f"NOT COMPARABLE: {plural(errors, 'error')}, see above.", "bold red")
    coupled = [f"its coupled {', '.join(loaded.coupled_keys)}"] if loaded.coupled_keys else []
    moving = " and ".join((loaded.spec.axis.key, *coupled))
    return line(f"Comparable: the conditions differ in {moving} only.", "bold green")


def unprobed(loaded: LoadedSweep) -> str:
    """Return what a check of keys alone leaves open; empty for nothing."""
    configs = {condition.label: condition.config for condition in loaded.conditions}
    count = len(pairs_to_probe(configs))
    if not count:
        return ""
    return (
        f"S6 compared keys only: `rltune check --deep` also compares the gradients of "
        f"{plural(count, 'pair')}, as `rltune sweep` does."
    )


def protocol_view(sweeps: Sequence[LoadedSweep]) -> RenderableType:
    """Return what S9 says about several sweeps together."""
    shared = check_protocol(sweeps)
    names = ", ".join(sweep.spec.name for sweep in sweeps if sweep.protocol is not None)
    if not names:
        return line("No protocol: these sweeps share no rules, and S9 was not checked.", "yellow")
    if not _errors(shared):
        return line(f"S9 ok: {names} agree on every key that their protocol holds.", "green")
    return Group(*(finding(item) for item in shared))
