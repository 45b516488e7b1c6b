"""S1 to S9: the proof, before anything runs, that only the axis moves. Pure functions."""

from collections.abc import Iterator, Mapping, Sequence

from rltune.comparability.confounders import confounders
from rltune.comparability.distinct import check_distinct
from rltune.comparability.findings import (
    SEEDS_FOR_A_CLAIM,
    AxisRow,
    ComparabilityReport,
    Finding,
    accept,
    error,
    split,
    warning,
)
from rltune.comparability.inactive_keys import inactive_keys
from rltune.comparability.judge_budget import judge_findings
from rltune.comparability.knobs import KNOBS, budget
from rltune.comparability.protocol import check_protocol
from rltune.comparability.single_axis import check_conditions
from rltune.spec.identity import flatten, same_value
from rltune.spec.keys import overlaps, typed
from rltune.spec.load import LoadedSweep
from rltune.spec.problems import show
from rltune.spec.schema.trial import TrialConfig, to_plain


def check_sweep(loaded: LoadedSweep) -> ComparabilityReport:
    """Return what S1 to S9 find in one sweep by its keys (S7 was proved by loading it).

    S6 here compares keys; `rltune.runner.proof` compares what conditions do as well.

    S9 here is what the sweep alone can break: an axis that its protocol does not free. Whether it
    agrees with the other sweeps of the protocol is `rltune.comparability.protocol.check_protocol`.
    """
    configs = {condition.label: condition.config for condition in loaded.conditions}
    trees = {label: typed(config) for label, config in configs.items()}
    control = loaded.control
    moving = (*loaded.axis_keys, *loaded.coupled_keys)
    findings = (
        *check_conditions(
            control.config,
            {label: config for label, config in configs.items() if label != control.label},
            loaded.axis_keys,
            loaded.spec.axis.coupled,
            values={condition.label: condition.value for condition in loaded.conditions},
            control_label=control.label,
        ),
        *check_held(trees, control.label, moving, loaded.held_keys),
        *check_seeds(loaded.seeds),
        *check_budgets(trees, control.label),
        *check_distinct(configs),
        *confounders(trees, moving),
        *judge_findings(trees),
        *check_protocol([loaded]),
    )
    return report_of(loaded, findings)


def report_of(loaded: LoadedSweep, findings: Sequence[Finding]) -> ComparabilityReport:
    """Return the report of what the rules found, with the sweep file's reasons for accepting it."""
    errors, warnings = split(accept(findings, loaded.spec.accept))
    return ComparabilityReport(not errors, errors, warnings, axis_table(loaded))


def axis_table(loaded: LoadedSweep) -> tuple[AxisRow, ...]:
    """Return a row per condition with the values of the axis and coupled keys."""
    moving = (*loaded.axis_keys, *loaded.coupled_keys)
    rows = []
    for condition in loaded.conditions:
        flat = flatten(condition.config)
        settings = {key: flat[key] for key in moving if key in flat}
        rows.append(AxisRow(condition.label, condition.is_control, settings))
    return tuple(rows)


def check_held(
    configs: Mapping[str, TrialConfig],
    control_label: str,
    moving: tuple[str, ...],
    held: tuple[str, ...],
) -> Iterator[Finding]:
    """Yield S3: a knob that is neither the axis, nor coupled, nor held, nor without effect.

    One that not every condition has is part of the variant that the axis chooses.
    """
    inactive = [inactive_keys(config) for config in configs.values()]
    flat = {label: flatten(to_plain(config)) for label, config in configs.items()}
    control = flat[control_label]
    missing = [
        knob
        for knob in KNOBS
        if all(knob in own for own in flat.values())
        and not any(overlaps(knob, key) for key in (*moving, *held))
        and not all(knob in keys for keys in inactive)
    ]
    if missing:
        reasons = "; ".join(f"{knob} ({KNOBS[knob]})" for knob in missing)
        lines = ", ".join(f"{knob}: {show(control[knob])}" for knob in missing)
        yield error("S3", f"Not held: {reasons}.", f"Write under hold: {lines}.")


def check_seeds(seeds: tuple[int, ...]) -> Iterator[Finding]:
    """Yield S4: too few seeds for a claim. Equal seeds hold by construction of the trials."""
    if len(seeds) < SEEDS_FOR_A_CLAIM:
        count = f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}"
        remedy = f"Run at least {SEEDS_FOR_A_CLAIM} seeds."
        yield warning("S4", f"No claim can be made from {count}.", remedy)


def check_budgets(configs: Mapping[str, TrialConfig], control_label: str) -> Iterator[Finding]:
    """Yield S5: a condition that may use more, or is measured differently, than the control."""
    wanted = budget(configs[control_label])
    for label, config in configs.items():
        unequal = [
            f"{key} {show(wanted[key])} -> {show(value)}"
            for key, value in budget(config).items()
            if not same_value(value, wanted[key])
        ]
        if unequal:
            message = f"{label!r} has another budget than the control: {', '.join(unequal)}."
            yield error("S5", message, "Give all conditions one budget.")
