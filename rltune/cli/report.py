"""`rltune report`: a run folder as one HTML page that needs no network and no account."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group

from rltune.cli.console import emit_json, show, warn
from rltune.cli.options import RUNS, Json, RunFolder, RunsDir
from rltune.errors import InputError, Problem
from rltune.report.html.gather import gather
from rltune.report.html.page import page
from rltune.report.render import line, short_path, size, verbatim
from rltune.report.render_run import audit_verdict
from rltune.store.files import write_text_atomic
from rltune.store.run_folder import find_run, read_folder

_Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Target file (default: DIR/figures/report.html)."),
]


def report(
    folder: RunFolder = None, runs_dir: RunsDir = RUNS, out: _Out = None, as_json: Json = False
) -> None:
    """Write one self-contained HTML page: proof, results, budget, replays, lineage, warnings.

    It opens without a network, a server or an account, and the same files give the same bytes.
    The page of a sweep that is running, failed or confounded says so.

    Example:
      rltune report runs/kl-55b4c751
      rltune report runs/kl-55b4c751 --out kl.html

    """
    sweep = read_folder(find_run(folder, runs_dir))
    path = sweep.run.path / "figures" / "report.html" if out is None else out
    evidence = gather(sweep)
    text = page(evidence)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomic(path, text)
    except OSError as error:
        what = f"the page cannot be written: {error.strerror or error}."
        action = "Give --out FILE in a folder that can be written."
        raise InputError(Problem(str(path), what, action=action)) from error
    for problem in evidence.read.problems:
        warn(f"unreadable: {problem}")
    count = len(text.encode())
    if as_json:
        emit_json(
            {
                "wrote": str(path),
                "bytes": count,
                "audit": evidence.audit.verdict.value,
                "replays": len(evidence.replays),
                "inputs_sha256": evidence.inputs_sha256,
            }
        )
        return
    show(
        Group(
            audit_verdict(evidence.audit),
            verbatim(f"wrote {short_path(path)}: {size(count)}"),
            line("Open it in a browser; it needs no network and can be sent as it is."),
        )
    )
