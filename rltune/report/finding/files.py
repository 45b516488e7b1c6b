"""The folder of a finding: tables, manifest, page and figures. The same finding, the same bytes."""

import re
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from rltune.analysis.tables import GateRow, MeasureRow, PairRow, Row, SummaryRow, TrialRow
from rltune.errors import InputError, Problem, StoreError
from rltune.lineage.read import read_body
from rltune.report.figures.draw import has_matplotlib
from rltune.report.finding.figures import drawn
from rltune.report.finding.page import page
from rltune.report.finding.records import FORMAT, PAGE_FORM, Finding, packed, unpacked
from rltune.report.table_files import csv_columns, read_csv, write_csv
from rltune.store.files import (
    read_json,
    replacing,
    sha256_file,
    write_json_atomic,
    write_text_atomic,
)

MANIFEST, PAGE = "manifest.json", "index.md"
SWEEP, LINEAGE, TRIALS = "sweep.yaml", "results.tsv", "trials.json"
TABLES: dict[str, type[Row]] = {
    "trials": TrialRow,
    "gates": GateRow,
    "pairs": PairRow,
    "measures": MeasureRow,
    "summary": SummaryRow,
}
"""Name of a table -> its row. One without rows has no file, but for `trials`."""

_KEYS = (
    *("name", "sweep", "title", "run", "question", "asked", "metrics", "note", "inputs"),
    *("rltune", "mark", "audit", "open_warnings", "trials", "not_in_summary", "unreadable"),
    *("statistics",),
)
"""What the manifest of every version has. Later keys are read with a default."""

R = TypeVar("R", bound=Row)

_AGAIN = "Make it again from its run folder: `rltune report RUN --finding DIR`."
_HEADING = re.compile(r"^#{1,2}\s", re.MULTILINE)


def is_finding(folder: Path) -> bool:
    """Tell whether a folder holds a finding."""
    path = folder / MANIFEST
    if not path.is_file():
        return False
    try:
        content = read_json(path)
    except InputError:
        return False
    return isinstance(content, dict) and str(content.get("format", "")).startswith("rltune-finding")


def noted(finding: Finding, note: str) -> Finding:
    """Return a finding with another note of its author.

    Raises:
        InputError: The note has a heading that would end its section.

    """
    if found := _HEADING.search(note):
        line = note[found.start() :].partition("\n")[0]
        what = f"{line!r} is a heading of level 1 or 2, which belongs to the page."
        raise InputError(Problem("--note", what, action="Use level 3 (###) or deeper."))
    return replace(finding, manifest={**finding.manifest, "note": note.strip()})


def require_place(out: Path, finding: Finding) -> None:
    """Refuse a folder that holds something else than a finding of the same sweep.

    Raises:
        InputError: It does.

    """
    where = f"--finding {out}"
    if out.exists() and not out.is_dir():
        raise InputError(Problem(where, "is a file.", action="Give a folder."))
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not is_finding(out):
        what = "is a folder with other files in it."
        raise InputError(Problem(where, what, action="Give a new folder, or that of a finding."))
    there, ours = read_json(out / MANIFEST).get("sweep"), finding.manifest["sweep"]
    if there != ours:
        what = f"holds the finding of the sweep {there!r}; this run is of {ours!r}."
        raise InputError(Problem(where, what, action="Give another folder, or delete this one."))


def write_finding(finding: Finding, out: Path) -> list[Path]:
    """Write the folder of a finding and return its files, manifest.json last.

    Raises:
        InputError: matplotlib is missing, or the folder cannot be written.

    """
    if not has_matplotlib():
        what = "a finding has figures, and matplotlib is not installed."
        raise InputError(Problem("--finding", what, action="`pip install 'rltune[figures]'`."))
    try:
        out.mkdir(parents=True, exist_ok=True)
        files = [*_write_data(finding, out), *_write_page(finding, out)]
        outputs = {path.name: sha256_file(path) for path in sorted(files)}
        content = {**finding.manifest, "drawn_with": _matplotlib(), "outputs": outputs}
        write_json_atomic(out / MANIFEST, content)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}."
        action = "Give a folder that can be written."
        raise InputError(Problem(str(out), what, action=action)) from error
    return [*files, out / MANIFEST]


def _matplotlib() -> str:
    return metadata.version("matplotlib")


def _write_data(finding: Finding, out: Path) -> list[Path]:
    files = []
    for name, kind in TABLES.items():
        path, rows = out / f"{name}.csv", getattr(finding, name)
        path.unlink(missing_ok=True)
        if rows or name == "trials":
            write_csv(path, kind, rows, finding.columns.get(name))
            files.append(path)
    for name, text in ((SWEEP, finding.sweep), (LINEAGE, finding.lineage_text)):
        (out / name).unlink(missing_ok=True)
        if text:
            write_text_atomic(out / name, text)
            files.append(out / name)
    write_json_atomic(out / TRIALS, packed(finding.recorded))
    return [*files, out / TRIALS]


def _write_page(finding: Finding, out: Path) -> list[Path]:
    write_text_atomic(out / PAGE, page(finding))
    files = [out / PAGE]
    for name, content in drawn(finding).items():
        with replacing(out / name) as file:
            file.write(content)
        files.append(out / name)
    return files


def read_manifest(folder: Path) -> Mapping[str, Any]:
    """Return the manifest of a finding, with `outputs`.

    Raises:
        StoreError: There is none, or it is another version's.

    """
    path = folder / MANIFEST
    if not folder.is_dir():
        raise StoreError(Problem(str(folder), "there is no such folder."))
    if not is_finding(folder):
        what = "is not the folder of a finding; it has no manifest.json of one."
        action = "`rltune report RUN --finding DIR` makes one."
        raise StoreError(Problem(str(folder), what, action=action))
    content = read_json(path)
    if content["format"] != FORMAT or not isinstance(content.get("outputs"), dict):
        what = f"is of the format {content['format']!r}; this rltune reads {FORMAT!r}."
        raise StoreError(Problem(str(path), what, action=_AGAIN))
    if content.get("page", 1) not in range(1, PAGE_FORM + 1):
        what = f"has a page of form {content['page']!r}, unknown to this rltune."
        action = "Use the rltune that wrote it (rltune.commit names it), or a later one."
        raise StoreError(Problem(str(path), what, action=action))
    if missing := [key for key in _KEYS if key not in content]:
        what = f"lacks {', '.join(missing)}."
        raise StoreError(Problem(str(path), what, action=_AGAIN))
    return dict(content)


def read_finding(folder: Path) -> Finding:
    """Return the finding that a folder holds. Whether it is what the manifest lists is not asked.

    Raises:
        StoreError: A file is missing, cannot be read, or is another version's.

    """
    content = dict(read_manifest(folder))
    outputs = content.pop("outputs")
    content.pop("drawn_with", None)
    lineage = _text(folder, LINEAGE) if LINEAGE in outputs else ""
    try:
        recorded = unpacked(read_json(folder / TRIALS))
    except (KeyError, TypeError, AttributeError, OSError) as error:
        what = f"cannot be read ({error!r})."
        raise StoreError(Problem(str(folder / TRIALS), what, action=_AGAIN)) from error
    finding = Finding(
        manifest=content,
        sweep=_text(folder, SWEEP),
        trials=_rows(folder, "trials", TrialRow, outputs),
        gates=_rows(folder, "gates", GateRow, outputs),
        pairs=_rows(folder, "pairs", PairRow, outputs),
        measures=_rows(folder, "measures", MeasureRow, outputs),
        summary=_rows(folder, "summary", SummaryRow, outputs),
        recorded=recorded,
        lineage=read_body(lineage.encode(), folder / LINEAGE, None).rows if lineage else (),
        lineage_text=lineage,
        columns={name: csv_columns(path) for name, path in _tables(folder, outputs).items()},
    )
    if not finding.trials:
        what = "has no trial."
        raise StoreError(Problem(str(folder / "trials.csv"), what, action=_AGAIN))
    return finding


def _text(folder: Path, name: str) -> str:
    try:
        return (folder / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = f"cannot be read ({error})."
        raise StoreError(Problem(str(folder / name), what, action=_AGAIN)) from error


def _tables(folder: Path, outputs: Mapping[str, str]) -> dict[str, Path]:
    """Return name -> file of the tables that a finding has."""
    names = [name for name in TABLES if f"{name}.csv" in outputs or name == "trials"]
    return {name: folder / f"{name}.csv" for name in names}


def _rows(folder: Path, name: str, kind: type[R], outputs: Mapping[str, str]) -> tuple[R, ...]:
    path = _tables(folder, outputs).get(name)
    if path is None:
        return ()
    if not path.is_file():
        raise StoreError(Problem(str(path), "is missing.", action=_AGAIN))
    return tuple(read_csv(path, kind))


def changed_files(folder: Path, outputs: Mapping[str, str]) -> dict[str, str]:
    """Return the listed files that are not as listed: name -> `is missing`, `was changed`."""
    found = {}
    for name, digest in outputs.items():
        path = folder / name
        if not path.is_file():
            found[name] = "is missing"
        elif sha256_file(path) != digest:
            found[name] = f"was changed (sha256 {sha256_file(path)[:12]}, listed {digest[:12]})"
    return found
