"""`rltune report --finding`: write a finding, or its page and figures again from its tables."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Group

from rltune.cli.console import emit_json, show, warn
from rltune.errors import InputError, Problem, StoreError
from rltune.report.finding.collect import collect
from rltune.report.finding.files import (
    PAGE,
    changed_files,
    is_finding,
    noted,
    read_finding,
    read_manifest,
    require_place,
    write_finding,
)
from rltune.report.finding.page import answers, power, stamps
from rltune.report.finding.records import PAGE_FORM, Finding
from rltune.report.manifest import Code
from rltune.report.render import line, short_path, size, verbatim
from rltune.runner.provenance import code_state, versions
from rltune.store.run_folder import read_folder
from rltune.store.rundir import RunDir

MOST_BYTES = 300_000
"""Size of a finding that belongs into a repository."""


def publish(
    run: RunDir, out: Path, *, note: Path | None, metrics: Sequence[str], as_json: bool
) -> None:
    """Write the finding of a run folder; the note of an earlier one stays, unless another is given.

    Raises:
        InputError: The folder holds something else, a metric was not measured, or the note cannot
            be read.

    """
    code = this_code()
    text = read_note(note) if note is not None else _earlier_note(out)
    name = out.resolve().name
    finding = noted(collect(read_folder(run), code, name=name, metrics=metrics), text)
    require_place(out, finding)
    _say(finding, out, write_finding(finding, out), as_json=as_json)


def redraw(folder: Path, note: Path | None, *, as_json: bool) -> None:
    """Write page and figures of a finding again from its tables.

    Raises:
        StoreError: A table is not the one that the manifest lists.

    """
    outputs = read_manifest(folder)["outputs"]
    drawn = {name for name in outputs if name == PAGE or name.endswith(".svg")}
    changed = changed_files(folder, {n: d for n, d in outputs.items() if n not in drawn})
    if changed:
        action = "Restore it, or make the finding again from its run folder."
        raise StoreError(
            [Problem(str(folder / n), f"{why}.", action=action) for n, why in changed.items()]
        )
    finding = read_finding(folder)
    finding = replace(finding, manifest={**finding.manifest, "page": PAGE_FORM})
    if note is not None:
        finding = noted(finding, read_note(note))
    _say(finding, folder, write_finding(finding, folder), as_json=as_json)


def this_code() -> Code:
    """Return what makes a finding now."""
    state = code_state()
    return Code(sys.argv[:1], versions(), state.label, state.source_sha256)


def _earlier_note(out: Path) -> str:
    return str(read_finding(out).manifest["note"]) if is_finding(out) else ""


def read_note(note: Path) -> str:
    """Return the author's own words.

    Raises:
        InputError: The file cannot be read.

    """
    try:
        return note.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = f"{str(note)!r} cannot be read: {error}."
        raise InputError(Problem("--note", what, action="Give a text file in UTF-8.")) from error


def _say(finding: Finding, out: Path, files: Sequence[Path], *, as_json: bool) -> None:
    count = sum(path.stat().st_size for path in files)
    if count > MOST_BYTES:
        warn(f"{size(count)} is more than {size(MOST_BYTES)}, much for a repository.")
    if as_json:
        emit_json(
            {
                "wrote": [str(path) for path in files],
                "bytes": count,
                "audit": finding.about.verdict,
                "answers": answers(finding),
                "power": power(finding),
            }
        )
        return
    stamp, shown = stamps(finding), power(finding)
    show(
        Group(
            *([line(stamp, "yellow")] if stamp else []),
            *(line(text) for text in answers(finding)),
            *([line(shown)] if shown else []),
            verbatim(f"wrote {short_path(out)}: {len(files)} files, {size(count)}"),
            verbatim(f"Prove it with `rltune verify {short_path(out)}`."),
        )
    )
