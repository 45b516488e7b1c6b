"""`rltune rerun` and `rltune continue`: repeat a recorded trial, or make a new one from it."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rltune.analysis.lookup import find_trial, run_of
from rltune.cli.console import emit_json, warn
from rltune.cli.options import (
    RUNS,
    Checkpoint,
    Json,
    NoCustomCode,
    RunFolder,
    RunsDir,
    TrialName,
)
from rltune.cli.sweep_end import refresh_lineage_report
from rltune.errors import InputError, Problem, StoreError
from rltune.lineage.record import disqualified_by
from rltune.report.render import plural, short_path
from rltune.runner.child import Child, run_child
from rltune.runner.machine import socket_folder
from rltune.runner.process import set_environment
from rltune.runner.rerun import Rerun, RerunVerdict, rerun_trial, verdict_json
from rltune.runner.single import Source, open_source
from rltune.runner.software import Change
from rltune.spec.custom_code import import_paths, refuse_paths
from rltune.spec.derive import recorded_config
from rltune.spec.schema.sweep import Metric
from rltune.store.compare import Comparison
from rltune.store.inputs import base_of
from rltune.store.origin import read_origin
from rltune.store.proof import confounded_reason, unproved
from rltune.store.run_folder import read_folder
from rltune.store.rundir import TrialDir
from rltune.types import TrialStatus

Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, metavar="N", help="Use another seed: makes a new trial."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Set a config key: makes a new trial; repeatable."
    ),
]


def rerun(
    trial: TrialName,
    folder: RunFolder = None,
    runs_dir: RunsDir = RUNS,
    verify: Annotated[
        bool, typer.Option("--verify", help="Exit code 1 unless the results are bit-equal.")
    ] = False,
    steps: Annotated[
        int | None,
        typer.Option("--steps", min=1, metavar="N", help="Compare only the first N steps."),
    ] = None,
    seed: Seed = None,
    overrides: Sets = None,
    from_checkpoint: Annotated[
        str | None,
        typer.Option(
            "--from-checkpoint",
            metavar="WHICH",
            help="Start a new trial from a checkpoint: best (the gate's choice), latest or a step.",
        ),
    ] = None,
    no_custom_code: NoCustomCode = False,
    as_json: Json = False,
) -> None:
    """Run a recorded trial again and compare, or make a new trial from it with --seed or --set.

    Example:
      rltune rerun kl_loss_coef=0.01@0 --verify
      rltune rerun kl_loss_coef=0.01@0 --verify --steps 3
      rltune rerun kl_loss_coef=0.01@0 --seed 7 --set optim.lr=2e-6

    """
    is_child = seed is not None or bool(overrides) or from_checkpoint is not None
    if is_child and (verify or steps is not None):
        what = "another seed, key or start makes a new trial; there is nothing to compare."
        action = "Leave --verify and --steps out, or the others."
        raise InputError(Problem("--verify", what, action=action))
    source = _open(trial, folder, runs_dir, no_custom_code=no_custom_code)
    if is_child:
        raise typer.Exit(_child(source, from_checkpoint, seed, overrides or (), as_json=as_json))
    raise typer.Exit(_repeat(source, steps=steps, verify=verify, as_json=as_json))


def continue_(
    trial: TrialName,
    folder: RunFolder = None,
    runs_dir: RunsDir = RUNS,
    checkpoint: Checkpoint = "best",
    seed: Seed = None,
    overrides: Sets = None,
    no_custom_code: NoCustomCode = False,
    as_json: Json = False,
) -> None:
    """Start a child trial from the checkpoint that the trial's gate chose.

    A child has its own steps, optimiser and identity; its parent is not changed. The same command
    shows a finished child, and resumes an interrupted one.

    Example:
      rltune continue kl_loss_coef=0.01@0
      rltune continue kl_loss_coef=0.01@0 --set budget.steps=100

    """
    source = _open(trial, folder, runs_dir, no_custom_code=no_custom_code)
    raise typer.Exit(_child(source, checkpoint, seed, overrides or (), as_json=as_json))


def _open(trial: str, folder: Path | None, runs_dir: Path, *, no_custom_code: bool) -> Source:
    """Return the trial, and set up this process as the trial's was, before torch is imported."""
    source = _read_source(find_trial(trial, folder, runs_dir))
    if no_custom_code:
        paths = import_paths(source.recorded)
        refuse_paths((f"{source.trial.config}: {key}", path) for key, path in paths)
    socket_folder()  # refuses before anything is written
    set_environment(recorded_config(source.recorded, source=str(source.trial.config)))
    return source


def _read_source(trial: TrialDir) -> Source:
    """Return a trial with its records and the metric of its sweep.

    Raises:
        StoreError: It has not started, its records were edited, or it is a repetition.

    """
    run = run_of(trial)
    if run is None:
        raise StoreError(Problem(str(trial.path), "is not a trial folder inside a run folder."))
    origin = read_origin(trial)
    if origin is not None and origin.kind == "rerun":
        what = f"is a repetition of {origin.parent}."
        raise StoreError(Problem(str(trial.path), what, action="Give the original."))
    sweep = read_folder(run)
    return open_source(
        run,
        trial,
        metric=Metric.model_validate({"name": sweep.metric_name, "mode": sweep.metric_mode}),
        disqualified=disqualified_by(confounded_reason(run)) or unproved(run),
    )


def _started(trial: TrialDir, changes: tuple[Change, ...]) -> None:
    """Say where it runs, and warn of everything that has changed."""
    warn(f"Running in {short_path(trial.path)}")
    for change in changes:
        warn(f"WARNING: {change}")


def _repeat(source: Source, *, steps: int | None, verify: bool, as_json: bool) -> int:
    base = base_of(source.provenance, otherwise=Path.cwd())
    again = rerun_trial(source, steps=steps, argv=tuple(sys.argv), base=base, on_start=_started)
    refresh_lineage_report(source.run)
    if as_json:
        emit_json(verdict_json(source, again))
    else:
        typer.echo(verdict_text(source, again))
    if again.verdict is RerunVerdict.INCOMPLETE:
        return 3 if again.status is TrialStatus.INTERRUPTED else 1
    return 1 if verify and again.verdict is not RerunVerdict.REPRODUCED else 0


def verdict_text(source: Source, again: Rerun) -> str:
    """Return the verdict of a rerun as text."""
    name, comparison = source.trial.trial_id, again.comparison
    folder = f"Kept in {short_path(again.trial.path)}, verdict in {again.trial.verdict.name}."
    if comparison is None:
        failure = again.trial.read_failed()
        why = f": {failure.reason}" if failure is not None else ""
        return f"{name}: not compared, the rerun ended {again.status}{why}.\n{folder}"
    scope = f"steps 0 to {again.last}: {compared_text(comparison)}"
    changed = ", ".join(change.name for change in again.changes if change.decides)
    if again.verdict is RerunVerdict.OTHER_INPUTS:
        return "\n".join([*_other_inputs(name, again, scope), folder])
    if comparison.difference is None:
        note = f" Changed since, without effect: {changed}." if changed else ""
        return f"{name}: reproduced, bit-equal in {scope}.{note}\n{folder}"
    lines = [
        f"{name}: {again.verdict}; compared {scope}.",
        f"First difference: {comparison.difference}.",
    ]
    if again.verdict is RerunVerdict.OTHER_SOFTWARE:
        lines.append(f"Changed since: {changed}. Run it on what its provenance.json names.")
    return "\n".join([*lines, folder])


def compared_text(comparison: Comparison) -> str:
    """Return what was compared, counted."""
    steps = comparison.checkpoints
    of_steps = f" of step {', '.join(map(str, steps))}" if steps else ""
    return (
        f"{plural(comparison.metric_rows, 'row')} of metrics without clocks and rates, "
        f"{plural(comparison.gates, 'held-out gate')}, "
        f"{plural(len(steps), 'checkpoint')}{of_steps}"
    )


def _other_inputs(name: str, again: Rerun, scope: str) -> list[str]:
    """Return the verdict of a rerun that read other files: it says nothing about the trial."""
    files = ", ".join(change.name for change in again.changes if change.is_input)
    difference = again.comparison.difference if again.comparison else None
    outcome = f"first difference: {difference}" if difference else f"bit-equal in {scope}"
    return [
        f"{name}: {again.verdict}; {outcome}.",
        f"It read other files than the trial: {files}. Put them back as they were, and run again.",
    ]


def _child(
    source: Source,
    checkpoint: str | None,
    seed: int | None,
    overrides: Sequence[str],
    *,
    as_json: bool,
) -> int:
    child = run_child(
        source,
        checkpoint=checkpoint,
        seed=seed,
        overrides=overrides,
        argv=tuple(sys.argv),
        base=base_of(source.provenance, otherwise=Path.cwd()),
        on_start=_started,
    )
    refresh_lineage_report(source.run)
    if as_json:
        result = child.trial.read_done()
        emit_json(
            {
                "trial_id": child.trial.trial_id,
                "folder": str(child.trial.path),
                "status": child.status,
                "was_finished": child.was_finished,
                "origin": read_origin(child.trial),
                "result": result,
            }
        )
    else:
        typer.echo(child_text(source, child))
    if child.status is TrialStatus.INTERRUPTED:
        warn("interrupted; the same command goes on.")
        return 3
    return 0 if child.status.is_finished and not child.status.is_failure else 1


def child_text(source: Source, child: Child) -> str:
    """Return the outcome of a child as text."""
    result, failure = child.trial.read_done(), child.trial.read_failed()
    name = child.trial.trial_id
    if result is None:
        why = f": {failure.reason}" if failure is not None else ""
        return f"{name}: {child.status}{why}.\n  log: {short_path(child.trial.log)}"
    before = "ended earlier; nothing was run" if child.was_finished else str(child.status)
    return (
        f"{name}: {before}. Parent {source.trial.trial_id}.\n"
        f"Held-out {source.metric.name}: start {result.base_metric:.4g}, best "
        f"{result.heldout_metric:.4g} at step {result.best_step} of {result.final_step}.\n"
        f"Kept in {short_path(child.trial.path)}; which step and why: card.md."
    )
