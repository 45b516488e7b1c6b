"""A8 of the files of a run: its proof, its plan and its sweep file say what its trials ran."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from rltune.comparability.audit_text import few
from rltune.comparability.findings import Finding, error, warning
from rltune.comparability.records import TrialRecord
from rltune.comparability.single_axis import check_conditions
from rltune.errors import Problem, StoreError
from rltune.spec.axis_checks import axis_leaf_keys
from rltune.spec.identity import HEX_IN_ID, config_hash, is_of_version_1
from rltune.spec.problems import validate
from rltune.spec.schema.sweep import SweepSpec
from rltune.spec.yamlfile import read_yaml
from rltune.store.proof import confounded_reason, unproved
from rltune.store.run_folder import SweepFolder, read_plan
from rltune.store.rundir import RunDir
from rltune.types import TrialSpec

_RESTORE = "Restore the files of the run as rltune wrote them, or run the sweep in another folder."
_PROVE = (
    "Run the sweep's command again: it proves the sweep anew and keeps the trials that finished."
)


def plan_findings(folder: SweepFolder, records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield A8: trials that no proof, another plan, or another sweep file stands for."""
    started = [record for record in records if record.has_started]
    if not started:
        return
    if why := unproved(folder.run):
        yield error("A8", f"{why}.", _PROVE)
    yield from _other_configs(folder.run, started)
    yield from _other_question(folder)
    if not confounded_reason(folder.run):
        yield from _extra_axes(folder.run, started)


def _other_configs(run: RunDir, records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield trials whose config is not the one that their name stands for, or that they began."""
    forged = [r.spec.trial_id for r in records if not _is_identity(r.spec)]
    if forged:
        message = f"the config of {few(forged)} is not the one that the trial's name stands for."
        yield error("A8", message, _RESTORE)
    begun = {r.spec.trial_id: r.spec for r in records if r.spec.trial_id not in forged}
    other = [name for name, spec in begun.items() if not _is_as_begun(run, spec)]
    if other:
        message = f"plan.json and spec.json name {few(other)} otherwise."
        yield error("A8", message, _RESTORE)


def _is_identity(spec: TrialSpec) -> bool:
    digest = spec.config_hash
    is_named = spec.trial_id.endswith(f"-{digest[:HEX_IN_ID]}")
    is_of_seed = spec.config.get("seed") == spec.seed
    is_own = digest == config_hash(spec.config) or is_of_version_1(spec.config, digest)
    return is_named and is_of_seed and is_own


def _is_as_begun(run: RunDir, spec: TrialSpec) -> bool:
    """Tell whether a trial began as what it is called now; a torn record says nothing."""
    trial = run.trial(spec.trial_id)
    if not trial.spec.is_file():
        return True
    with suppress(StoreError):
        return _place(trial.read_spec()) == _place(spec)
    return True


def _place(spec: TrialSpec) -> tuple[object, ...]:
    """Return where a trial stands in its sweep."""
    return spec.config_hash, spec.condition, spec.axis_key, spec.is_control, spec.seed


def _other_question(folder: SweepFolder) -> Iterator[Finding]:
    """Yield that sweep.yaml asks for another metric than the trials were planned for."""
    planned = read_plan(folder.run).get("metric")
    asked = {"name": folder.metric_name, "mode": folder.metric_mode}
    if isinstance(planned, Mapping) and dict(planned) != asked:
        texts = [f"{one.get('name')} ({one.get('mode')})" for one in (asked, planned)]
        message = f"sweep.yaml asks for {texts[0]}, and the trials were planned for {texts[1]}."
        yield error("A8", message, _RESTORE)


def _extra_axes(run: RunDir, records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield where S1 and S2, asked again of the configs that ran, contradict the proof."""
    sweep = _sweep_of(run)
    if sweep is None:
        message = (
            "sweep.yaml is no sweep file of this version: what its axis and its coupled keys "
            "allow was not asked again of the configs that ran."
        )
        yield warning("A8.not_proved", message, _RESTORE)
        return
    seeds = dict.fromkeys(record.spec.seed for record in records)
    groups = ([r.spec for r in records if r.spec.seed == seed] for seed in seeds)
    found = dict.fromkeys(one for group in groups for one in _extra_axes_of_seed(sweep, group))
    for one in found:
        message = f"{one.rule} holds in comparability.json, and not for what ran: {one.message}"
        yield error("A8", message, _RESTORE)


def _extra_axes_of_seed(sweep: SweepSpec, specs: Sequence[TrialSpec]) -> tuple[Finding, ...]:
    control = next((spec for spec in specs if spec.is_control), None)
    if control is None:
        return ()
    return check_conditions(
        control.config,
        {spec.condition: spec.config for spec in specs if not spec.is_control},
        axis_leaf_keys(sweep),
        sweep.axis.coupled,
        values={spec.condition: spec.axis_value for spec in specs},
        control_label=control.condition,
    )


def _sweep_of(run: RunDir) -> SweepSpec | None:
    """Return the sweep file of a run; None where this version cannot read it as one."""
    file = read_yaml(run.sweep, kind="sweep file")
    problems: list[Problem] = []
    sweep = None if isinstance(file, Problem) else validate(SweepSpec, file.data, str, problems)
    return sweep if isinstance(sweep, SweepSpec) else None
