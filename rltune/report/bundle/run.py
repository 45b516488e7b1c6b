"""The bundle of one run: its records beside its finding."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rltune.report.bundle.archive import LIST, MOST, files_of, listed_check, seal, shown
from rltune.report.bundle.chart_check import chart_checks
from rltune.report.bundle.charts import add_charts
from rltune.report.bundle.contents import copy_run
from rltune.report.bundle.remade import own_files, remade_check
from rltune.report.finding.collect import collect
from rltune.report.finding.files import MANIFEST, noted, write_finding
from rltune.report.finding.records import Finding
from rltune.report.finding.verify import UNREADABLE, Check, SourcesAt, verify
from rltune.report.manifest import Code
from rltune.report.render import plural
from rltune.store.run_folder import SweepFolder, read_folder, run_folders
from rltune.store.rundir import RunDir

KIND = "rltune-bundle-1"
RUN, FINDING = "run", "finding"  # its two folders


def build(
    folder: SweepFolder,
    root: Path,
    code: Code,
    *,
    place: str,
    metrics: Sequence[str] = (),
    note: str = "",
    has_checkpoints: bool = False,
) -> Finding:
    """Lay out a bundle in an empty folder, and return its finding.

    Args:
        folder: The run folder.
        root: Where the bundle is laid out.
        code: What makes it.
        place: How commands name the bundle: `paper.zip`.
        metrics: Measures to show beside the sweep's metric.
        note: The author's own words.
        has_checkpoints: Whether the checkpoint that each trial's gate chose is in it.

    Raises:
        InputError: A file of the run holds a secret.
        StoreError: A chart of generations cannot be made from its records any more.

    """
    run = RunDir(root / RUN / folder.run.path.resolve().name)
    copy_run(folder, run, has_checkpoints=has_checkpoints)
    found = collect(read_folder(run), code, name=Path(place).stem, metrics=metrics, place=place)
    finding = noted(found, note)
    write_finding(finding, root / FINDING)
    add_charts({folder.run.path.resolve(): run}, root)
    seal(root, finding.name, kind=KIND)
    return finding


def verify_bundle(root: Path, *, sources_at: SourcesAt) -> tuple[Finding | None, list[Check]]:
    """Return the finding of an unpacked bundle, and what was verified.

    The tables of the finding are made again from the records of the run, whose audit is made again,
    too; the rest is verified as of any finding.
    """
    files = listed_check(root, kind=KIND)
    if not (root / FINDING / MANIFEST).is_file():
        return None, [files, Check("finding", (f"{FINDING}/{MANIFEST} is missing",))]
    finding, checks = verify(root / FINDING, sources_at=sources_at)
    if finding is None:
        return None, [files, *checks]
    return finding, [files, *_of_records(root, finding), *checks]


def _of_records(root: Path, finding: Finding) -> Iterator[Check]:
    folders = run_folders(root / RUN)
    if len(folders) != 1:
        what = f"{RUN} holds {plural(len(folders), 'run folder')}, not one"
        yield Check("records", (what,))
        return
    run = RunDir(folders[0])
    yield remade_check(run, finding, names=(RUN, FINDING))
    yield from chart_checks(root, run)
    try:
        own = own_files(root, run, finding, root / FINDING)
    except UNREADABLE:
        return  # the check before says so
    yield strangers_check(root, {root / LIST, *own})


def strangers_check(root: Path, own: set[Path]) -> Check:
    """Return whether every file is one that a bundle holds: nothing vouches for another."""
    strange = [shown(path, root) for path in files_of(root) if path not in own]
    return Check(
        "no other file", tuple(f"{name} is no file of a bundle" for name in strange[:MOST])
    )
