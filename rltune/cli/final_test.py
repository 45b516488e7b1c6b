"""`rltune test`: evaluate a trial on test tasks that played no part in any choice."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rltune.analysis.lookup import find_trial
from rltune.cli.console import emit_json, warn
from rltune.cli.options import RUNS, Json, NoCustomCode, RunFolder, RunsDir, TrialName
from rltune.errors import Problem, StoreError
from rltune.report.levels import levels_sentence
from rltune.runner.inputs import require_inputs_of
from rltune.runner.machine import short_temporary_folder
from rltune.runner.process import device_of, prepare_for, set_threads
from rltune.runner.provenance import code_state, device_name, versions
from rltune.spec.custom_code import import_paths, refuse_paths
from rltune.spec.schema.trial import TrialConfig
from rltune.spec.trial_reference import looking_in
from rltune.store.inputs import recorded_inputs, within
from rltune.store.provenance import base_of_trial, read_provenance
from rltune.store.rundir import TrialDir
from rltune.trainer.custom_env import naming_custom_env
from rltune.trainer.tasks import env_maker, require_same_rows
from rltune_envs.bounds import Floor
from rltune_envs.faults import FAULT_SHARE, too_many_faults

if TYPE_CHECKING:
    from rltune.trainer.final_test import TestJob


def final_test(
    trial: TrialName,
    folder: RunFolder = None,
    runs_dir: RunsDir = RUNS,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="WHICH",
            help="Checkpoint: best (the gate's choice), latest or a step.",
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Evaluate again (each test evaluation is counted).")
    ] = False,
    no_custom_code: NoCustomCode = False,
    as_json: Json = False,
) -> None:
    """Evaluate a trial's chosen checkpoint once on the frozen test tasks.

    Example:
      rltune test kl_loss_coef=0.01@0
      rltune test runs/kl-55b4c751/trials/kl_loss_coef=0.01-s0-be828c636d --again

    """
    source = find_trial(trial, folder, runs_dir)
    config = prepare_for(source)  # before torch is imported
    if no_custom_code:
        paths = import_paths(config.model_dump())
        refuse_paths((f"{source.config}: {key}", path) for key, path in paths)

    from rltune.trainer.final_test import BEST, checkpoint_step, read_record, run_final_test

    which = checkpoint or BEST
    step = checkpoint_step(source, which)
    record = read_record(source)
    if record is not None and not again and record["step"] != step:
        what = (
            f"the test tasks were played with the checkpoint of step {record['step']}, not {step}."
        )
        action = "Add --again to evaluate again; each evaluation is counted."
        raise StoreError(Problem(str(source.path), what, action=action))
    if record is None or again:
        if source.read_done() is None:
            warn("The trial has not finished: its gate may still choose another checkpoint.")
        base = base_of_trial(source)
        there = TrialDir(source.path.absolute())
        with (
            naming_custom_env(config.env),
            within(base),
            looking_in(there.path),
            short_temporary_folder(),
        ):
            record = run_final_test(test_job(there, config, base), which=which)
    if as_json:
        emit_json(record)
    else:
        typer.echo(paragraph(record))


def paragraph(record: dict[str, Any]) -> str:
    """Return a recorded final test as a paragraph."""
    low, high = record["interval"]
    sampled = f"temperature {record['temperature']:g}" if record["do_sample"] else "greedy"
    sentences = [
        f"{record['trial_id']}, step {record['step']}: solved {record['successes']} of "
        f"{record['n']} test tasks, {record['success_rate']:.3f} [{low:.3f}, {high:.3f}] (95 % "
        f"Wilson, over tasks), {sampled}.",
        levels_sentence(Floor.from_json(record["floor"]), record["ceiling"]),
    ]
    if record["auxiliary"]:
        means = ", ".join(f"{name} {value:.3f}" for name, value in record["auxiliary"].items())
        sentences.append(f"Means: {means}.")
    if record.get("sets"):
        sentences.append(_sets(record["sets"]))
    if record["fault_count"]:
        sentences.append(_faults(record["n"], record["fault_count"]))
    if not record.get("code", {}).get("is_of_trial", True):
        sentences.append("It was trained with other code or packages than it was tested with.")
    times = record["looks"]
    often = "once" if times == 1 else f"{times} times; this is the last evaluation"
    sentences.append(f"This trial's test tasks were evaluated {often}.")
    return " ".join(sentences)


def _sets(measured: Mapping[str, float]) -> str:
    """Return what each named set came to: `nq: em 0.400, f1 0.450; macro: em 0.400, f1 0.450.`."""
    by_set: dict[str, list[str]] = {}
    for metric, value in measured.items():
        _, name, measure = metric.split("/")
        by_set.setdefault(name, []).append(f"{measure} {value:.3f}")
    told = (f"{name}: {', '.join(texts)}" for name, texts in by_set.items())
    return f"{'; '.join(told)}."


def _faults(n: int, n_faults: int) -> str:
    """Return how many test tasks were scored, and whether that proves anything."""
    asked = n + n_faults
    sentence = f"Scored were {n} of {asked} test tasks; {n_faults} had a fault and do not count."
    if not too_many_faults(n_faults, asked):
        return sentence
    share = f"more than {FAULT_SHARE:.0%} were lost"
    return f"{sentence} This proves nothing ({share}): repair what failed, and test again."


def test_job(trial: TrialDir, config: TrialConfig, base: Path) -> "TestJob":
    """Return what a test needs, with the trial's own policy, environment and tasks.

    Args:
        trial: The trial.
        config: Its config.
        base: Folder to which relative paths refer.

    Raises:
        StoreError: A file that it reads has changed.

    """
    from rltune.trainer.engines import make_engine
    from rltune.trainer.final_test import TestJob, read_manifest
    from rltune.trainer.start import policy_at_start

    origin = read_provenance(trial)
    manifest = read_manifest(trial.path.parents[1], str(origin.get("manifest_sha256", "")))
    require_inputs_of(trial, origin, base)
    make_env = env_maker(config.env, config.reward, base)
    require_same_rows(make_env, manifest)
    set_threads(config.resources.threads)
    device = device_of(config)
    return TestJob(
        trial=trial,
        config=config,
        config_hash=trial.read_spec().config_hash,
        manifest=manifest,
        make_env=make_env,
        policy=policy_at_start(trial, config, base, device=device),
        make_engine=partial(make_engine, config),
        code=_code(origin, device=device),
    )


def _code(origin: Mapping[str, Any], *, device: str) -> dict[str, Any]:
    """Return the code that tests, and whether the trial's last attempt ran the same code.

    Args:
        origin: The trial's provenance.
        device: The torch device that tests; it may differ from the one that trained.

    """
    inputs = recorded_inputs(origin)  # they are as they were: others are refused
    same = {**asdict(code_state()), "versions": versions(origin.get("versions") or ())}
    is_of_trial = all(origin.get(key) == same[key] for key in ("source_sha256", "versions"))
    code = {**same, "inputs": inputs, "device": device_name(device)}
    return {**code, "is_of_trial": is_of_trial}
