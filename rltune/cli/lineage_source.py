"""Which table a person means: a results.tsv, a run folder, or the newest run folder."""

from pathlib import Path
from typing import Annotated

import typer

from rltune.errors import Problem, StoreError
from rltune.lineage.table import LineageStore
from rltune.store.run_folder import find_run

Source = Annotated[
    Path | None,
    typer.Argument(
        metavar="[DIR|FILE]",
        help="Run folder or results.tsv (default: the newest run folder).",
        show_default=False,
    ),
]


def table_path(source: Path | None, runs_dir: Path) -> Path:
    """Return the path of the table.

    Raises:
        StoreError: There is no such run folder, or no table in it yet.

    """
    if source is not None and (source.is_file() or source.suffix == ".tsv"):
        path, what, action = source, "there is no such file.", ""
    else:
        path = find_run(source, runs_dir).results
        what = "no trial has ended yet, so there is no lineage."
        action = "`rltune status` shows what runs."
    if not path.is_file():
        raise StoreError(Problem(str(path), what, action=action))
    return path


def open_table(source: Path | None, runs_dir: Path) -> LineageStore:
    """Open the table; StoreError when there is none."""
    return LineageStore.open(table_path(source, runs_dir))
