"""`rltune export`: the curves of a run folder as tidy data, and its training dynamics drawn."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rltune.cli.console import show, warn
from rltune.cli.options import RUNS, RunFolder, RunsDir

if TYPE_CHECKING:
    from rltune.report.audit import Audit


def export(folder: RunFolder = None, runs_dir: RunsDir = RUNS) -> None:
    """Write DIR/figures: every metric as CSV; success, retrieval accuracy and entropy as a figure.

    The figure needs the signals of `--set collapse.every=N`, and says so when the audit failed or
    fewer than three seeds ran.
    """
    from rltune.report.audit import audit_folder
    from rltune.report.curves import Band, Point, bands_of, points_of, to_csv
    from rltune.report.dynamics import CHANCE, RETRIEVAL, TRIO, Lines, draw_dynamics
    from rltune.report.folder import find_run, read_folder, read_records
    from rltune.report.render import line
    from rltune.report.summary import bounds_of
    from rltune.store.files import replacing, write_text_atomic

    found = read_folder(find_run(folder, runs_dir))
    read = read_records(found)
    audited = audit_folder(found, read)
    points = points_of(read.records)
    figures = found.run.path / "figures"
    figures.mkdir(exist_ok=True)
    write_text_atomic(figures / "curves.csv", to_csv(points, Point))
    show(line(f"wrote {figures / 'curves.csv'}: {len(points)} values"))
    bands = bands_of(points, TRIO)
    if not any(band.metric == RETRIEVAL for band in bands):
        warn("no figure: no trial measured collapse; run with --set collapse.every=5")
        return
    write_text_atomic(figures / "dynamics.csv", to_csv(bands, Band))
    show(line(f"wrote {figures / 'dynamics.csv'}: means over seeds, 95 % t intervals"))
    started = [record for record in read.records if record.metrics]
    bounds = [known for record in started if (known := bounds_of(found, record)) is not None]
    lines = Lines(
        found.title,
        _notes(audited, len({record.spec.seed for record in started})),
        floor=_only(known.floor for known in bounds),
        ceiling=_only(known.ceiling for known in bounds),
        chance=next((point.value for point in points if point.metric == CHANCE), None),
    )
    for kind in ("png", "svg"):
        try:
            drawn = draw_dynamics(bands, lines, kind=kind)
        except ModuleNotFoundError:
            warn("no figure: matplotlib is not installed; pip install 'rltune[figures]'")
            return
        with replacing(figures / f"dynamics.{kind}") as file:
            file.write(drawn)
        show(line(f"wrote {figures / f'dynamics.{kind}'}"))


def _only(values: Iterable[float]) -> float | None:
    """Return the one value that all have; None where conditions have tasks of their own."""
    known = set(values)
    return known.pop() if len(known) == 1 else None


def _notes(audited: "Audit", n_seeds: int) -> list[str]:
    """Return what a reader must know before comparing the lines of a figure."""
    from rltune.spec.findings import SEEDS_FOR_A_CLAIM

    notes = [] if audited.ok else [f"The audit is {audited.verdict}: the lines are not comparable."]
    if n_seeds < SEEDS_FOR_A_CLAIM:
        notes.append(f"{n_seeds} seed{'s' if n_seeds > 1 else ''}: no claim can be made.")
    return notes
