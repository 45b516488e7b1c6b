"""`rltune export`: the curves of a run folder as tidy data, and its training dynamics drawn."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rltune.cli.console import emit_json, show, warn
from rltune.cli.options import RUNS, Json, RunFolder, RunsDir
from rltune.errors import InputError, Problem

if TYPE_CHECKING:
    from rltune.report.audit import Audit
    from rltune.report.curves import Band, Point
    from rltune.report.dynamics import Lines
    from rltune.report.folder import RecordsRead, SweepFolder

_HOW = "no figure: no trial measured collapse; run with --set collapse.every=5"


def export(folder: RunFolder = None, runs_dir: RunsDir = RUNS, as_json: Json = False) -> None:
    """Write DIR/figures: every metric as CSV; success, retrieval accuracy and entropy as a figure.

    The figure needs the signals of `--set collapse.every=N`, and says so when the audit failed or
    fewer than three seeds ran.
    """
    from rltune.report.audit import audit_folder
    from rltune.report.curves import Point, points_of, to_csv
    from rltune.report.dynamics import RETRIEVAL
    from rltune.report.folder import find_run, read_folder, read_records
    from rltune.store.files import write_text_atomic

    found = read_folder(find_run(folder, runs_dir))
    read = read_records(found)
    audited = audit_folder(found, read)
    points = points_of(read.records)
    figures = found.run.path / "figures"
    figures.mkdir(exist_ok=True)
    write_text_atomic(figures / "curves.csv", to_csv(points, Point))
    wrote, notes = [figures / "curves.csv"], []
    has_collapse = any(point.metric == RETRIEVAL for point in points)
    try:
        if has_collapse:
            bands, lines = _dynamics(found, read, audited, points)
            notes = list(lines.notes)
            _write_dynamics(figures, bands, lines, wrote)
    finally:  # what was written is said, also when matplotlib is missing
        for problem in read.problems:
            warn(f"unreadable: {problem}")
        _say(audited, wrote, len(points), notes, as_json=as_json)
    if not has_collapse:
        warn(_HOW)


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
    audited: "Audit", wrote: Sequence[Path], n_values: int, notes: Sequence[str], *, as_json: bool
) -> None:
    """Print the verdict of the audit and the files, or the same as JSON."""
    from rich.console import Group

    from rltune.report.render import line, quantity, short_path, verbatim
    from rltune.report.render_run import audit_verdict

    if as_json:
        emit_json(
            {
                "audit": audited.verdict.value,
                "values": n_values,
                "wrote": [str(path) for path in wrote],
                "notes": list(notes),
            }
        )
        return
    about = {
        "curves.csv": f": {quantity(n_values)} values",
        "dynamics.csv": ": means and 95 % t intervals over seeds",
    }
    files = [f"wrote {short_path(path)}{about.get(path.name, '')}" for path in wrote]
    show(
        Group(
            audit_verdict(audited),
            *(verbatim(text) for text in files),
            *(line(f"note: {note}", "yellow") for note in notes),
        )
    )
