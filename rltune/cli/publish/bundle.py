"""`rltune bundle`: the evidence of a sweep as one zip that another machine can verify."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group

from rltune.cli.console import emit_json, show
from rltune.cli.options import RUNS, Json, RunFolder, RunsDir
from rltune.cli.publish.finding import read_note, this_code
from rltune.errors import InputError, Problem
from rltune.report.finding.bundle import build, write_zip
from rltune.report.finding.page import answers
from rltune.report.render import line, short_path, size, verbatim
from rltune.store.files import sha256_file
from rltune.store.run_folder import find_run, read_folder


def bundle(
    folder: RunFolder = None,
    *,
    out: Annotated[Path, typer.Option("--out", metavar="ZIP", help="Target file.")],
    runs_dir: RunsDir = RUNS,
    note: Annotated[
        Path | None,
        typer.Option("--note", metavar="FILE", help="Markdown to put into its page."),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="NAME", help="Measure that its page shows; repeatable."),
    ] = None,
    checkpoints: Annotated[
        bool,
        typer.Option("--checkpoints", help="Add the checkpoint that each trial's gate chose."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write records, tables, figures and page of a sweep as one zip, for `rltune verify`.

    The same run folder gives the same bytes. Episodes, logs and names of machines stay out, and a
    file that holds a secret is refused.

    Example:
      rltune bundle runs/kl-55b4c751 --out paper.zip
      rltune bundle runs/kl-55b4c751 --out paper.zip --checkpoints

    """
    if out.suffix != ".zip" or out.is_dir():
        raise InputError(Problem(f"--out {out}", "is not the name of a zip.", "Give NAME.zip."))
    run = find_run(folder, runs_dir)
    with tempfile.TemporaryDirectory(prefix="rltune-bundle-") as place:
        finding = build(
            read_folder(run),
            Path(place),
            this_code(),
            place=out.name,
            metrics=metrics or (),
            note=read_note(note) if note is not None else "",
            has_checkpoints=checkpoints,
        )
        write_zip(Path(place), out)
    count, digest = out.stat().st_size, sha256_file(out)
    if as_json:
        told = {"wrote": str(out), "bytes": count, "sha256": digest}
        emit_json({**told, "audit": finding.about.verdict, "answers": answers(finding)})
        return
    show(
        Group(
            *(line(text) for text in answers(finding)),
            verbatim(f"wrote {short_path(out)}: {size(count)}, sha256 {digest}"),
            verbatim(f"Prove it anywhere with `rltune verify {short_path(out)}`."),
        )
    )
