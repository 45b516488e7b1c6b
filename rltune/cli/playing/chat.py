"""A policy at play, turn by turn: `rltune chat`, and the player of `rltune play --policy`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rltune.analysis.lookup import find_trial
from rltune.cli.console import emit_json, warn
from rltune.cli.options import RUNS, Checkpoint, Json, NoCustomCode, RunFolder, RunsDir
from rltune.cli.playing.folder import FolderAsked, chat_folder, is_model_folder
from rltune.cli.playing.policy import PolicyPlayer
from rltune.cli.playing.sides import Contestant, play_sides, summary
from rltune.errors import InputError, Problem, StoreError
from rltune.runner.process import prepare_for
from rltune.spec.custom_code import import_paths, refuse_paths
from rltune.spec.trial_reference import checkpoint_of, is_reference, looking_in
from rltune.store.inputs import within
from rltune.store.provenance import base_of_trial, read_provenance
from rltune.store.rundir import TrialDir
from rltune.trainer.custom_env import naming_custom_env
from rltune.trainer.tasks import env_maker
from rltune_envs.splits import Manifest

if TYPE_CHECKING:
    from rltune.policy.load import Policy
    from rltune.trainer.models.export import Trained


def chat(
    trial: Annotated[
        str,
        typer.Argument(
            metavar="TRIAL|MODEL",
            help="Trial: its folder, its id or the start of it, condition@seed, or "
            "trial:RUN/TRIAL[@STEP]. Or the folder of a model or an adapter.",
            show_default=False,
        ),
    ],
    folder: RunFolder = None,
    runs_dir: RunsDir = RUNS,
    checkpoint: Checkpoint = "best",
    tasks: Annotated[
        int, typer.Option("--tasks", min=1, help="Number of held-out tasks, from the first on.")
    ] = 1,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, help="Seed of the first task, in place of held-out tasks."),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            min=0.0,
            help="Sampling temperature; 0 is greedy (default: the gate's).",
        ),
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Leave out the policy as it was before training.")
    ] = False,
    env: Annotated[
        str | None,
        typer.Option(
            "--env",
            metavar="ENV",
            help="What a model's folder plays, as in rltune play (default: what its rltune.json "
            "says).",
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            metavar="MODEL",
            help="What a model's folder was trained from: a folder, a hub id or tiny. It plays, "
            "too (default: an adapter's, where it is found).",
        ),
    ] = None,
    no_custom_code: NoCustomCode = False,
    as_json: Json = False,
) -> None:
    """Watch what a trial learned, turn by turn: the same tasks before and after training.

    Both draw with the same seeds. The environment is the trial's own. The folder of a model plays
    the tasks from seed 0 on.

    Example:
      rltune chat kl_loss_coef=0.01@0 --tasks 3
      rltune chat kl_loss_coef=0.01@0 --checkpoint latest --temperature 0
      rltune chat trial:mine-1a2b3c4d/kl_loss_coef=0.0-s0@20 --alone
      rltune chat my-model --env sokoban --tasks 3

    """
    if is_model_folder(trial):
        if checkpoint != "best":
            what = f"{trial} is the folder of one model."
            raise InputError(Problem("--checkpoint", what, action="Leave it out."))
        if folder is not None:
            what = f"{trial} is the folder of a model, which is of no run."
            raise InputError(Problem(str(folder), what, action="Leave it out."))
        asked = FolderAsked(
            Path(trial),
            env=env,
            base=base,
            temperature=temperature,
            alone=alone,
            no_custom_code=no_custom_code,
        )
        chat_folder(asked, range(seed or 0, (seed or 0) + tasks), as_json=as_json)
        return
    _refuse_folder_options(env, base)
    source, which = _named(trial, folder, runs_dir, checkpoint)
    config = prepare_for(source)  # before torch is imported
    if no_custom_code:
        paths = import_paths(config.model_dump())
        refuse_paths((f"{source.config}: {key}", path) for key, path in paths)

    from rltune.trainer.final_test import checkpoint_step
    from rltune.trainer.models.export import Trained

    step = checkpoint_step(source, which)
    if source.read_done() is None:
        warn("The trial has not finished: its gate may still choose another checkpoint.")
    there = base_of_trial(source)
    digest = source.read_spec().config_hash
    trained = Trained(TrialDir(source.path.absolute()), config, digest, there, step)
    seeds = _heldout_seeds(source, tasks) if seed is None else range(seed, seed + tasks)
    if len(seeds) < tasks:
        warn(f"{tasks} tasks were asked for; the trial has {len(seeds)} held-out tasks.")
    with naming_custom_env(config.env), within(there), looking_in(source.path.absolute()):
        players = list(_players(trained, temperature, alone=alone))
        sides = play_sides(players, seeds, is_quiet=as_json)
    if as_json:
        emit_json({"trial_id": source.trial_id, "step": step, "sides": sides})
        return
    typer.echo("\n".join(summary(sides)))
    if step == 0 and not alone:
        why = ": the gate chose step 0" if which == "best" else ""
        typer.echo(f"Both are the same policy{why}.")


def _refuse_folder_options(env: str | None, base: str | None) -> None:
    for option, value in (("--env", env), ("--base", base)):
        if value is not None:
            what = "a trial has its own; it is for a model's folder."
            raise InputError(Problem(option, what, action="Leave it out."))


def _named(
    given: str, folder: Path | None, runs_dir: Path, checkpoint: str
) -> tuple[TrialDir, str]:
    """Return the trial that is named, and its checkpoint: a reference names both."""
    if not is_reference(given):
        return find_trial(given, folder, runs_dir), checkpoint
    found = checkpoint_of(given, Path.cwd(), "TRIAL")
    return TrialDir(found.trial), str(found.step)


def _heldout_seeds(trial: TrialDir, count: int) -> Sequence[int]:
    """Return the seeds of the first held-out tasks of a trial.

    Raises:
        StoreError: Its frozen tasks are gone, or were edited.

    """
    from rltune.trainer.final_test import read_manifest

    sha256 = str(read_provenance(trial).get("manifest_sha256", ""))
    manifest: Manifest = read_manifest(trial.path.absolute().parents[1], sha256)
    return [task.seed for task in manifest.heldout[:count]]


def _players(trained: "Trained", temperature: float | None, *, alone: bool) -> Iterator[Contestant]:
    from rltune.errors import CheckpointError
    from rltune.trainer.models.export import trained_policy
    from rltune.trainer.start import policy_at_start

    config = trained.config
    drawn_at = config.gate.temperature if temperature is None else temperature
    env = env_maker(config.env, config.reward, trained.base)()

    def player(policy: "Policy") -> PolicyPlayer:
        return PolicyPlayer(policy, config, env, temperature=drawn_at, is_sweep=True)

    if not alone:
        try:
            start = policy_at_start(trained.trial, config, trained.base, device="cpu")
        except CheckpointError as error:
            raise StoreError(str(error)) from error
        yield "before", 0, player(start)
    yield "after", trained.step, player(trained_policy(trained))
