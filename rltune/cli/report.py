"""`rltune report`: a run folder as one HTML page, or as a finding to publish."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group

from rltune.cli.console import emit_json, show, warn
from rltune.cli.options import RUNS, Json, RunFolder, RunsDir
from rltune.cli.publish.finding import publish, redraw
from rltune.errors import InputError, Problem
from rltune.report.finding.files import is_finding
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
_Finding = Annotated[
    Path | None,
    typer.Option(
        "--finding",
        metavar="FOLDER",
        help="Write a finding instead: page, figures and tables to publish.",
    ),
]
_Note = Annotated[
    Path | None,
    typer.Option("--note", metavar="FILE", help="Markdown to put into the finding's page."),
]
_Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="Measure that the finding shows beside the sweep's metric; repeatable.",
    ),
]


def report(
    folder: RunFolder = None,
    runs_dir: RunsDir = RUNS,
    out: _Out = None,
    finding: _Finding = None,
    note: _Note = None,
    metrics: _Metrics = None,
    as_json: Json = False,
) -> None:
    """Write one self-contained HTML page: proof, results, budget, replays, lineage, warnings.

    It opens without a network, a server or an account, and the same files give the same bytes.
    The page of a sweep that is running, failed or confounded says so.

    With --finding it writes a small folder to publish instead, which `rltune verify` proves. DIR
    may also be such a folder: its page and figures are then made again from its own tables.

    Example:
      rltune report runs/kl-55b4c751
      rltune report runs/kl-55b4c751 --out kl.html
      rltune report runs/kl-55b4c751 --finding docs/findings/kl --note kl.md
      rltune report docs/findings/kl

    """
    is_published = folder is not None and is_finding(folder)
    _require_fitting(out, finding, note, metrics, is_published=is_published)
    if folder is not None and is_published:
        redraw(folder, note, as_json=as_json)
    elif finding is not None:
        run = find_run(folder, runs_dir)
        publish(run, finding, note=note, metrics=metrics or (), as_json=as_json)
    else:
        _write_page(folder, runs_dir, out, as_json=as_json)


def _require_fitting(
    out: Path | None,
    finding: Path | None,
    note: Path | None,
    metrics: list[str] | None,
    *,
    is_published: bool,
) -> None:
    """Refuse options that would have no effect."""
    problems = []
    if out is not None and (finding is not None or is_published):
        problems.append(Problem("--out", "is of the HTML page.", action="Leave it out."))
    if finding is None and not is_published and (note is not None or metrics):
        option = "--note" if note is not None else "--metric"
        problems.append(Problem(option, "is of a finding.", action="Add --finding FOLDER."))
    if is_published and (finding is not None or metrics):
        option = "--finding" if finding is not None else "--metric"
        what = "DIR is a finding, whose tables stay as they are."
        problems.append(Problem(option, what, action="Give its run folder as DIR instead."))
    if problems:
        raise InputError(problems)


def _write_page(folder: Path | None, runs_dir: Path, out: Path | None, *, as_json: bool) -> None:
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
