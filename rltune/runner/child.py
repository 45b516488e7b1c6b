"""A new trial made from an old one: other keys, another seed, or a checkpoint to start from."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltune.errors import CheckpointError, Problem, StoreError
from rltune.runner.folder import planned_ids
from rltune.runner.inputs import require_inputs_of
from rltune.runner.process import set_environment
from rltune.runner.rerun import link_or_copy
from rltune.runner.single import Source, child_exp_id, record_single, run_single
from rltune.runner.software import Change, changes_since, software_now
from rltune.runner.trial import steps_done
from rltune.spec.derive import derive_config, derive_spec
from rltune.spec.identity import diff_configs
from rltune.spec.schema.trial import TrialConfig
from rltune.store.files import dumps
from rltune.store.inputs import recorded_inputs
from rltune.store.origin import Origin, read_origin, write_origin
from rltune.store.provenance import read_provenance
from rltune.store.rundir import TrialDir, trial_status
from rltune.trainer.inputs import inputs_of
from rltune.types import TrialSpec, TrialStatus


@dataclass(frozen=True, slots=True)
class Child:
    """A child trial."""

    trial: TrialDir  # its folder
    spec: TrialSpec  # what it was asked to do
    status: TrialStatus  # where it is
    was_finished: bool  # whether it had ended before it was asked for


@dataclass(frozen=True, slots=True)
class Start:
    """The checkpoint that a child starts from."""

    which: str  # `best`, `latest`, or a step
    step: int  # its training step
    folder: Path  # where it is
    weights_sha256: str  # digest of its policy


def run_child(
    source: Source,
    *,
    checkpoint: str | None,
    seed: int | None,
    overrides: Sequence[str],
    argv: tuple[str, ...],
    base: Path,
    on_start: Callable[[TrialDir, tuple[Change, ...]], None],
) -> Child:
    """Run a trial whose parent is another one. One that has ended is returned, never run again.

    Args:
        source: The parent.
        checkpoint: `best`, `latest` or a step of the parent to start from; None: the child starts
            as its config says, or as its parent did where that started from a checkpoint.
        seed: Seed instead of the parent's; None keeps it.
        overrides: `key=value` texts.
        argv: The command line, for the records.
        base: Folder to which relative paths in the config refer.
        on_start: Told the folder and what differs since the parent ran, before anything is trained.

    Raises:
        SpecError: An override cannot be used.
        StoreError: There is no such checkpoint, or what is asked for is the parent itself or
            another trial of the sweep that has not ended, or a file that it reads has changed.

    """
    config = derive_config(
        source.recorded, source=str(source.trial.config), overrides=overrides, seed=seed
    )
    set_environment(TrialConfig.model_validate_json(dumps(config)))  # before torch is imported
    start = _start(source, checkpoint)
    step, digest = (start.step, start.weights_sha256) if start else (None, "")
    spec = derive_spec(source.spec, config, start=digest, step=step)
    known = _in_sweep(source, spec)
    trial = known or source.run.child(spec.trial_id)
    status = trial_status(trial)
    if known is not None and not status.is_finished:
        what = "this trial belongs to the sweep itself and has not finished."
        raise StoreError(Problem(str(known.path), what, action="Run it with `rltune next`."))
    if steps_done(trial) is not None:
        require_inputs_of(trial, read_provenance(trial), base)
    if status.is_finished:
        return Child(trial, spec, status, was_finished=True)
    before = _shared(source, config, base)
    require_inputs_of(source.trial, before, base)
    changes = changes_since(before, software_now(before, base))
    trial.create()
    _prepare(source, trial, config, start, changes)
    on_start(trial, changes)
    status = run_single(source, trial, spec, argv=argv, base=base)
    names = ", ".join(change.name for change in changes)
    changed = f"; changed since its parent ran: {names}" if names else ""
    record_single(
        source,
        trial,
        spec,
        exp_id=child_exp_id(trial),
        hypothesis=_hypothesis(source, config, start),
        notes=f"child of {source.trial.trial_id}; selected_on: heldout{changed}",
        counts=True,
        disqualified=not_comparable(source.recorded, config),
    )
    return Child(trial, spec, status, was_finished=False)


def _shared(source: Source, config: Mapping[str, Any], base: Path) -> Mapping[str, Any]:
    """Return a parent's provenance without the inputs that its child does not read."""

    def read_by(plain: Mapping[str, Any]) -> set[str]:
        return set(inputs_of(TrialConfig.model_validate_json(dumps(plain)), base))

    left_out = read_by(source.recorded) - read_by(config)
    recorded = recorded_inputs(source.provenance)
    kept = {name: digest for name, digest in recorded.items() if name not in left_out}
    return {**source.provenance, "inputs": kept} if recorded else source.provenance


def _start(source: Source, checkpoint: str | None) -> Start | None:
    """Return the checkpoint to start from; a child's child may share its parent's start."""
    from rltune.trainer.final_test import checkpoint_step
    from rltune.trainer.start import checkpoint_digest

    if checkpoint is None:
        before = read_origin(source.trial)
        if before is None or before.step is None:
            return None
        folder = source.trial.start.parent
        return Start(before.which, before.step, folder, before.weights_sha256)
    step = checkpoint_step(source.trial, checkpoint)
    folder = source.trial.checkpoint(step)
    try:
        return Start(checkpoint, step, folder, checkpoint_digest(folder))
    except CheckpointError as error:
        raise StoreError(
            Problem(str(folder), f"{error}.", action="Choose another checkpoint.")
        ) from error


def _in_sweep(source: Source, spec: TrialSpec) -> TrialDir | None:
    """Return the trial of the sweep that has this very identity; refuse the parent's own."""
    if spec.config_hash == source.spec.config_hash:
        what = "nothing differs from the trial itself."
        action = "Give --seed, --set or --from-checkpoint, or repeat the trial with --verify."
        raise StoreError(Problem(str(source.trial.path), what, action=action))
    begun = [trial.read_spec() for trial in source.run.trial_dirs() if trial.spec.is_file()]
    known = planned_ids(source.run) | {own.config_hash: own.trial_id for own in begun}
    return source.run.trial(known[spec.config_hash]) if spec.config_hash in known else None


def _prepare(
    source: Source,
    trial: TrialDir,
    config: dict[str, Any],
    start: Start | None,
    changes: tuple[Change, ...],
) -> None:
    """Write what the child comes from, its start first: a record of it promises the weights.

    The weights get a name of the child's own: its parent may go on, and drop the checkpoint.
    """
    if start is not None and not trial.start.exists():
        link_or_copy(start.folder / "policy.safetensors", trial.start)
    differences = diff_configs(source.recorded, config)
    write_origin(
        trial,
        Origin(
            kind="child",
            parent=source.trial.trial_id,
            folder=os.path.relpath(source.trial.path.resolve(), source.run.path.resolve()),
            step=start.step if start else None,
            which=start.which if start else "",
            weights_sha256=start.weights_sha256 if start else "",
            changes={key: list(values) for key, values in differences.items()},
            software=tuple(map(str, changes)),
        ),
    )


def not_comparable(parent: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return why a child's metric cannot be compared with its run's; empty when it can."""
    moved = diff_configs(parent, config).keys() - {"gate.every", "gate.start_kl"}
    if any(key.partition(".")[0] in ("env", "reward", "gate") for key in moved):
        return "evaluated differently from its parent: env, reward or gate differ"
    return ""


def _hypothesis(source: Source, config: dict[str, Any], start: Start | None) -> str:
    parts = [f"{source.spec.condition}, seed {config['seed']}"]
    if start is not None:
        parts.append(f"from step {start.step} ({start.which}) of {source.trial.trial_id}")
    for key, (before, now) in diff_configs(source.recorded, config).items():
        parts.append(f"{key} {before} -> {now}")
    return ", ".join(parts)
