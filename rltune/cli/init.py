"""`rltune init`: starter sweeps and configs, with a schema that editors complete from."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from rltune.errors import InputError, Problem
from rltune.spec.schema.sweep import sweep_json_schema
from rltune.spec.sources import PACKAGE
from rltune.store.files import dumps, write_text_atomic

SCHEMA = "sweep.schema.json"
_MODELINE = f"# yaml-language-server: $schema={SCHEMA}\n"


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Target folder (default: the working folder).")
    ] = Path("."),
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")] = False,
) -> None:
    """Copy the starter sweeps and configs to DIR, with a JSON schema for editors.

    Example:
      rltune init my-study

    """
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
