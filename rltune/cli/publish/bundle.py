"""`rltune bundle`: the evidence of a run or a study as one zip, for `rltune verify`."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType

from rltune.cli.console import emit_json, show
from rltune.cli.options import RUNS, Json, RunsDir, why_not_writable
from rltune.cli.publish.finding import read_note, this_code
from rltune.errors import InputError, Problem
from rltune.report.bundle.archive import write_zip
from rltune.report.bundle.run import build
from rltune.report.finding.page import answers
from rltune.report.render import indent, line, short_path, size, verbatim
from rltune.store.files import sha256_file
from rltune.store.run_folder import find_run, is_run_folder, read_folder
from rltune.study.bundle import build_study
from rltune.study.kept import STUDY, load_kept
from rltune.study.load import Study, is_study, load_study
from rltune.study.page import unfinished
from rltune.study.state import DECISIONS

_What = Annotated[
    Path | None,
    typer.Argument(
        metavar="[RUN|STUDY]",
        help="Run folder (default: the newest), study file, or folder of a study.",
        show_default=False,
    ),
]


def bundle(
    what: _What = None,
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

    Of a study: those of every sweep that has begun, with what was promoted and proposed. Charts of
    generations come along with the trials that they rest on. The same runs give the same bytes.
    Episodes, logs and names of machines stay out, and a file that holds a secret is refused.

    Example:
      rltune bundle runs/kl-55b4c751 --out paper.zip
      rltune bundle runs/kl-55b4c751 --out paper.zip --checkpoints
      rltune bundle studies/nights.yaml --out nights.zip

    """
    if out.suffix != ".zip" or out.is_dir():
        raise InputError(Problem(f"--out {out}", "is not the name of a zip.", "Give NAME.zip."))
    if why := why_not_writable(out.parent):
        raise InputError(Problem(f"--out {out}", f"{why}.", action="Give another file."))
    study, runs_dir = _study(what, runs_dir)
    with tempfile.TemporaryDirectory(prefix="rltune-bundle-") as place:
        root = Path(place)
        if study is None:
            told = _of_run(what, runs_dir, root, out, note, metrics or (), checkpoints)
        else:
            _require_no_page_options(note, metrics or ())
            told = _of_study(study, runs_dir, root, out, checkpoints)
        write_zip(root, out)
    count, digest = out.stat().st_size, sha256_file(out)
    data, views = told
    if as_json:
        emit_json({"wrote": str(out), "bytes": count, "sha256": digest, **data})
        return
    wrote = verbatim(f"wrote {short_path(out)}: {size(count)}, sha256 {digest}")
    prove = verbatim(f"Prove it anywhere with `rltune verify {short_path(out)}`.")
    show(Group(*views, wrote, prove))


def _study(what: Path | None, runs_dir: Path) -> tuple[Study | None, Path]:
    """Return the study that was given, and its runs dir; None for a run folder.

    Raises:
        InputError: It is a file, and no study file; or a study's folder without its files.

    """
    if what is None:
        return None, runs_dir
    if what.is_file():
        if not is_study(what):
            problem = "is a file, and no study file."
            action = "Give the run folder of a sweep, RUNS/NAME-HASH, or a study."
            raise InputError(Problem(str(what), problem, action=action))
        return load_study(what), runs_dir
    if not is_run_folder(what) and any((what / name).is_file() for name in (STUDY, DECISIONS)):
        return load_kept(what), what.resolve().parent
    return None, runs_dir


def _require_no_page_options(note: Path | None, metrics: Sequence[str]) -> None:
    for option, value in {"--note": note, "--metric": metrics}.items():
        if value:
            problem = "is of the page of one sweep."
            raise InputError(Problem(option, problem, action="Leave it out, or give a run folder."))


_Told = tuple[dict[str, Any], list[RenderableType]]


def _of_run(
    what: Path | None,
    runs_dir: Path,
    root: Path,
    out: Path,
    note: Path | None,
    metrics: Sequence[str],
    has_checkpoints: bool,
) -> _Told:
    """Lay out the bundle of a run; return what it says as data and as text."""
    finding = build(
        read_folder(find_run(what, runs_dir)),
        root,
        this_code(),
        place=out.name,
        metrics=metrics,
        note=read_note(note) if note is not None else "",
        has_checkpoints=has_checkpoints,
    )
    told = answers(finding)
    return {"audit": finding.about.verdict, "answers": told}, [line(text) for text in told]


def _of_study(study: Study, runs_dir: Path, root: Path, out: Path, has_checkpoints: bool) -> _Told:
    """Lay out the bundle of a study; return what it says as data and as text."""
    made = build_study(
        study, runs_dir, root, this_code(), place=out.name, has_checkpoints=has_checkpoints
    )
    views: list[RenderableType] = []
    for name, finding in made.findings.items():
        views.append(line(name, "bold"))
        views += [indent(line(text)) for text in answers(finding)]
    if left := unfinished(made.standing):
        views.append(line(f"Not finished: {left}.", "yellow"))
    told = {name: answers(finding) for name, finding in made.findings.items()}
    return {"standing": made.standing, "answers": told}, views
