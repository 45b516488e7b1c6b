"""`rltune export`: a run folder as tables with their evidence, and its training dynamics drawn."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.cli.console import emit_json, show, warn
from rltune.cli.options import RUNS, Json, RunFolder, RunsDir
from rltune.errors import InputError, Problem

if TYPE_CHECKING:
    from rltune.report.audit import Audit
    from rltune.report.curves import Band, Point
    from rltune.report.dynamics import Lines
    from rltune.report.export import Table
    from rltune.report.folder import RecordsRead, SweepFolder

_NO_PARQUET = "no Parquet: run `pip install 'rltune[parquet]'`; the CSV files are written"
_HOW = "no figure: no trial measured collapse; run with --set collapse.every=5"


def export(folder: RunFolder = None, runs_dir: RunsDir = RUNS, as_json: Json = False) -> None:
    """Write DIR/figures: the tables as CSV and Parquet, their manifest, the training dynamics.

    trials, history, evals, gates and summary are what every figure can be made again from;
    docs/export.md says what each column is. The figure of success, retrieval accuracy and entropy
    needs the signals of `--set collapse.every=N`. Both say so when the audit failed.
    """
    from rltune.report.audit import audit_folder
    from rltune.report.curves import Point, points_of, to_csv
    from rltune.report.dynamics import RETRIEVAL
    from rltune.report.export import write_tables
    from rltune.report.folder import find_run, read_folder, read_records
    from rltune.report.manifest import digests, input_files
    from rltune.store.files import write_text_atomic

    found = read_folder(find_run(folder, runs_dir))
    inputs = digests(found.run, input_files(found))
    read = read_records(found)
    audited = audit_folder(found, read)
    points = points_of(read.records)
    figures = found.run.path / "figures"
    figures.mkdir(exist_ok=True)
    tables = write_tables(found, read, audited, figures)
    write_text_atomic(figures / "curves.csv", to_csv(points, Point))
    wrote, notes = [figures / "curves.csv"], []
    has_collapse = any(point.metric == RETRIEVAL for point in points)
    try:
        if has_collapse:
            bands, lines = _dynamics(found, read, audited, points)
            notes = list(lines.notes)
            _write_dynamics(figures, bands, lines, wrote)
    finally:  # what was written is said, also when matplotlib is missing
        _write_manifest(found, read, audited, inputs, tables, wrote)
        for problem in read.problems:
            warn(f"unreadable: {problem}")
        _say(audited, tables, wrote, len(points), notes, as_json=as_json)
    if not has_collapse:
        warn(_HOW)
    if all(len(table.files) == 1 for table in tables):
        warn(_NO_PARQUET)


def _write_manifest(
    found: "SweepFolder",
    read: "RecordsRead",
    audited: "Audit",
    inputs: Sequence[Mapping[str, Any]],
    tables: Sequence["Table"],
    wrote: list[Path],
) -> None:
    """Write manifest.json, and add it to `wrote`."""
    from rltune.report.export import outputs_of
    from rltune.report.manifest import Code, manifest
    from rltune.runner.provenance import code_state, versions
    from rltune.store.files import write_json_atomic
    from rltune.store.secret import masked

    state = code_state()
    command = ["rltune", *(masked(word) for word in sys.argv[1:])]
    code = Code(command, versions(), state.label, state.source_sha256)
    content = manifest(found, read, audited, code, inputs=inputs, estimator="mean")
    content["outputs"] = outputs_of(tables, wrote)
    path = found.run.path / "figures" / "manifest.json"
    write_json_atomic(path, content)
    wrote.append(path)


def _dynamics(
    found: "SweepFolder", read: "RecordsRead", audited: "Audit", points: Sequence["Point"]
) -> tuple[list["Band"], "Lines"]:
    """Return what the figure shows."""
    from rltune.report.curves import bands_of
    from rltune.report.dynamics import SUCCESS, TRIO, Lines, chance_of, notes_of, only
    from rltune.report.folder import open_warnings
    from rltune.report.summary import bounds_of

    started = [record for record in read.records if record.metrics]
    bounds = [known for record in started if (known := bounds_of(found, record)) is not None]
    tasks = min((known.tasks for known in bounds), default=0)
    bands = bands_of(points, TRIO, resolutions={SUCCESS: 1.0 / tasks} if tasks else {})
    lines = Lines(
        found.title or found.name,
        notes_of(audited, bands, open_warnings(found.run)),
        control=next((spec.condition for spec in found.specs if spec.is_control), ""),
        floor=only(known.floor for known in bounds),
        ceiling=only(known.ceiling for known in bounds),
        chance=chance_of(points),
    )
    return bands, lines


def _write_dynamics(
    figures: Path, bands: Sequence["Band"], lines: "Lines", wrote: list[Path]
) -> None:
    """Write the means, then the figure; add each file to `wrote` once it stands.

    Raises:
        InputError: matplotlib is not installed; the means are written.

    """
    from rltune.report.curves import Band, to_csv
    from rltune.report.dynamics import draw_dynamics
    from rltune.store.files import replacing, write_text_atomic

    write_text_atomic(figures / "dynamics.csv", to_csv(bands, Band))
    wrote.append(figures / "dynamics.csv")
    for kind in ("png", "svg"):
        try:
            drawn = draw_dynamics(bands, lines, kind=kind)
        except ModuleNotFoundError as error:
            action = "Run `pip install 'rltune[figures]'`; the CSV files are written."
            what = f"drawing it needs {error.name or 'matplotlib'}, which is not installed."
            raise InputError(Problem("figure", what, action=action)) from error
        with replacing(figures / f"dynamics.{kind}") as file:
            file.write(drawn)
        wrote.append(figures / f"dynamics.{kind}")


def _say(
    audited: "Audit",
    tables: Sequence["Table"],
    wrote: Sequence[Path],
    n_values: int,
    notes: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Print the verdict of the audit and the files, or the same as JSON."""
    from rich.console import Group

    from rltune.report.render import line, quantity, short_path, verbatim
    from rltune.report.render_run import audit_verdict
    from rltune.report.tables import OK, mark_of

    files = [path for table in tables for path in table.files] + list(wrote)
    if as_json:
        emit_json(
            {
                "audit": audited.verdict.value,
                "mark": mark_of(audited),
                "values": n_values,
                "rows": {table.name: table.rows for table in tables},
                "wrote": [str(path) for path in files],
                "notes": list(notes),
            }
        )
        return
    about = {
        "curves.csv": f": {quantity(n_values)} values",
        "dynamics.csv": ": means and 95 % t intervals over seeds",
        "manifest.json": ": digests of what was read and written",
    }
    said = [
        f"wrote {short_path(table.files[0])}{', .parquet' * (len(table.files) - 1)}: "
        f"{quantity(table.rows)} rows"
        for table in tables
    ]
    said += [f"wrote {short_path(path)}{about.get(path.name, '')}" for path in wrote]
    mark = mark_of(audited)
    marked = [] if mark == OK else [line(f"marked in every row: {mark}", "yellow")]
    show(
        Group(
            audit_verdict(audited),
            *(verbatim(text) for text in said),
            *marked,
            *(line(f"note: {note}", "yellow") for note in notes),
        )
    )
