"""`rltune init`: starter sweeps and configs, with a schema that editors complete from."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from rltune.cli.options import NoCustomCode
from rltune.errors import InputError, Problem
from rltune.spec.custom_code import refuse_paths
from rltune.spec.schema.sweep import sweep_json_schema
from rltune.spec.sources import PACKAGE
from rltune.store.files import dumps, write_text_atomic

SCHEMA = "sweep.schema.json"
_MODELINE = f"# yaml-language-server: $schema={SCHEMA}\n"


def init(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR|NAME]",
            help="Target folder (default: the working folder); with --task, the sweep's name "
            "(default: the file's).",
        ),
    ] = Path("."),
    task: Annotated[
        Path | None,
        typer.Option(
            "--task",
            metavar="FILE",
            help="Write NAME.yaml, a sweep over the problems of a .jsonl, .json, .csv or .parquet "
            "file, or of a data set: reasoning_gym:NAME.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="FOLDER|ID",
            help="Model of that sweep (default: a small policy for two cores, NAME-policy).",
        ),
    ] = None,
    question: Annotated[
        str | None,
        typer.Option("--question", metavar="COLUMN", help="Column that is asked, if not found."),
    ] = None,
    answer: Annotated[
        str | None,
        typer.Option("--answer", metavar="COLUMN", help="Column of the answers, if not found."),
    ] = None,
    verifier: Annotated[
        str | None,
        typer.Option(
            "--verifier",
            metavar="NAME",
            help="number, boxed, multiple_choice, exact, or my_pkg.my_mod:score (default: by the "
            "answers).",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")] = False,
    no_custom_code: NoCustomCode = False,
) -> None:
    """Copy the starter sweeps and configs to DIR, or write a sweep over a file of problems.

    Example:
      rltune init my-study
      rltune init my-task --task problems.jsonl
      rltune init gcd --task reasoning_gym:gcd

    """
    options = {"--model": model, "--question": question, "--answer": answer, "--verifier": verifier}
    if task is not None:
        if empty := [name for name, value in options.items() if value == ""]:
            raise InputError(Problem(", ".join(empty), "is empty.", action="Leave it out."))
        from rltune.cli.init_task import Asked, write_task

        if no_custom_code and verifier and ":" in verifier:
            refuse_paths([("--verifier", verifier)])
        name = target if target != Path(".") else Path(_slug(task.stem))
        write_task(Asked(name, task, model, question, answer, verifier, force))
        return
    if given := [name for name, value in options.items() if value]:
        raise InputError(
            Problem(", ".join(given), "is of a file of problems.", action="Give --task FILE.")
        )
    _copy_starter(target, force=force)


def _slug(text: str) -> str:
    """Return a text as the name of a sweep."""
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-_") or "my-task"


def _copy_starter(folder: Path, *, force: bool) -> None:
    """Copy the starter files, and say what was written."""
    if folder.is_file():
        action = f"For a sweep over its problems: rltune init NAME --task {folder}."
        raise InputError(Problem(str(folder), "is a file, not a folder.", action=action))
    files = {folder / name: text for name, text in starter_files()}
    changed = {path: text for path, text in files.items() if _content(path) != text}
    clashes = [path for path in changed if path.exists()]
    if clashes and not force:
        action = "Move it away, or replace it with --force."
        raise InputError(
            [
                Problem(str(path), "exists and differs from the starter.", action=action)
                for path in clashes
            ]
        )
    for path, text in changed.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomic(path, text)
        typer.echo(f"wrote {path}")
    if kept := len(files) - len(changed):
        typer.echo(f"{kept} files are already there, unchanged")
    start = f"cd {shlex.quote(str(folder))} && " if folder != Path(".") else ""
    typer.echo(f"Next: {start}rltune check sweeps/quickstart.yaml")


def starter_files() -> Iterator[tuple[str, str]]:
    """Yield (relative path, content) of every starter file.

    Raises:
        InputError: The installation has none.

    """
    root = starter_root()
    for path in sorted((root / "configs").rglob("*.yaml")):
        yield str(path.relative_to(root)), path.read_text(encoding="utf-8")
    for path in sorted((root / "sweeps").glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        is_marked = "yaml-language-server:" in text
        yield str(path.relative_to(root)), text if is_marked else _MODELINE + text
    yield f"sweeps/{SCHEMA}", dumps(sweep_json_schema(), indent=2) + "\n"


def starter_root() -> Path:
    """Return the folder with configs/ and sweeps/: in the wheel, or of the checkout."""
    for root in (PACKAGE / "starter", PACKAGE.parent):
        if (root / "configs").is_dir() and (root / "sweeps").is_dir():
            return root
    action = "Install rltune again: `pip install --force-reinstall rltune`."
    raise InputError(
        Problem(str(PACKAGE / "starter"), "the starter files are missing.", action=action)
    )


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
