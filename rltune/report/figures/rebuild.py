"""Redraw the figures from an export alone, without its run folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltune.errors import Problem, StoreError
from rltune.report.figures.files import Written, write_figures
from rltune.report.figures.source import AGAIN, READ, read_about, read_tables
from rltune.store.files import read_json, sha256_file


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Redrawn figures."""

    folder: Path  # the export
    kind: str  # of the tables that they came from: `csv` or `parquet`
    written: Written  # what became of them
    other_data: tuple[str, ...]  # names of data files that are not what manifest.json lists
    other_drawings: tuple[str, ...]  # names of drawings likewise


def find_export(given: Path) -> Path:
    """Return the export that a person means: a folder with a manifest, or its run folder.

    Raises:
        StoreError: It is neither.

    """
    for folder in (given, given / "figures"):
        if (folder / "manifest.json").is_file():
            return folder
    action = "Give the folder that `rltune export` wrote, <run folder>/figures, or its run folder."
    what = "there is no manifest.json here." if given.is_dir() else "there is no such folder."
    raise StoreError(Problem(str(given), what, action=action))


def rebuild(folder: Path) -> Rebuilt:
    """Make the figures of an export again from its tables, in place; the manifest stays.

    Raises:
        StoreError: A file is missing, is another version's, or is not what the manifest lists.

    """
    about = read_about(folder)
    listed = _listed(read_json(folder / "manifest.json"))
    kind = "csv" if (folder / f"{READ[0]}.csv").is_file() else "parquet"
    for name in READ:
        _require_listed(folder / f"{name}.{kind}", listed)
    written = write_figures(read_tables(folder, about, kind=kind), folder)
    other = [p.name for p in written.files if listed.get(p.name) != sha256_file(p)]
    return Rebuilt(
        folder,
        kind,
        written,
        tuple(name for name in other if name.endswith(".json")),
        tuple(name for name in other if not name.endswith(".json")),
    )


def _listed(manifest: Any) -> dict[str, str]:
    return {str(entry["path"]): str(entry["sha256"]) for entry in manifest["outputs"]}


def _require_listed(path: Path, listed: dict[str, str]) -> None:
    if not path.is_file():
        raise StoreError(Problem(str(path), "is missing.", action=AGAIN))
    if listed.get(path.name) != sha256_file(path):
        what = "is not the file that manifest.json lists (other sha256)."
        raise StoreError(Problem(str(path), what, action=AGAIN))
