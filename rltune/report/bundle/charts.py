"""The generations of a model in a bundle: their charts, and the records that these rest on.

A chart is that of a run folder (`rltune lineage generations`), made again from what the bundle
holds. A generation of a run that is not in the bundle brings the records of its trial.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rltune.analysis.fresh import FRESH, read_fresh
from rltune.analysis.generations import generation_table
from rltune.errors import InputError, Problem
from rltune.lineage.generations import Generations, generations
from rltune.lineage.table import rows_in
from rltune.report.bundle.contents import copy_record, named_records, records_of_trial, task_files
from rltune.report.finding.verify import UNREADABLE
from rltune.report.generations import CHART, CHARTS, CSV, DATA, write_generations
from rltune.store.rundir import RunDir, TrialDir

BEFORE = "before"
"""Folder of a bundle: trials that charts rest on, of runs that are not in it, by their names."""


def add_charts(runs: Mapping[Path, RunDir], root: Path) -> None:
    """Add the charts of a bundle's runs, with all that they rest on.

    Args:
        runs: Run folder, as it is found on this machine -> its place in the bundle.
        root: Folder of the bundle.

    Raises:
        InputError: Two runs that a chart goes through have one name.
        StoreError: A chart cannot be made from its records any more.

    """
    taken = {there.path: own for own, there in runs.items()}

    def place_of(run: Path) -> Path:
        own = run.resolve()
        there = runs[own].path if own in runs else root / BEFORE / own.name
        if taken.setdefault(there, own) != own:
            what = f"a chart goes through two runs of this name, this one and {taken[there]}."
            raise InputError(Problem(str(own), what, action="Rename one of them."))
        return there

    for own, there in runs.items():
        for exp_id in charted(own):
            folder = own / CHARTS / exp_id
            found = generations(own / there.results.name, exp_id, own.parent)
            read_fresh(folder / FRESH, found)
            for source, target in rests_on(found, place_of):
                copy_record(source, target)
            for source, target in named_records(folder, there.path / CHARTS / exp_id, [FRESH]):
                copy_record(source, target)
            _write(there, exp_id, places_in(root, there))


def _write(run: RunDir, exp_id: str, places: Sequence[Path]) -> None:
    """Write a chart from the records of a bundle."""
    found = generations(run.results, exp_id, run.path.parent, bundled=places)
    folder = run.path / CHARTS / exp_id
    record = read_fresh(folder / FRESH, found)
    write_generations(folder, generation_table(found, record), kinds=["svg"])


def charted(run: Path) -> list[str]:
    """Return the rows of a run folder whose generations were charted."""
    names = dict.fromkeys(row.exp_id for row in rows_in(RunDir(run).results))
    return [name for name in names if (run / CHARTS / name).is_dir()]


def places_in(root: Path, run: RunDir) -> tuple[Path, Path]:
    """Return where in a bundle the runs are that the charts of one of its runs go through."""
    return run.path.parent, root / BEFORE


def rests_on(found: Generations, place_of: Callable[[Path], Path]) -> Iterator[tuple[Path, Path]]:
    """Yield the records that a chart rests on: file, and where it goes, by the place of its run."""
    for one in found.chain:
        own = one.trial.path.parents[1]
        there = place_of(own)
        names = [RunDir(own).sweep.name, RunDir(own).results.name, *task_files(own)]
        yield from named_records(own, there, names)
        trial = TrialDir(there / one.trial.path.relative_to(own))
        yield from records_of_trial(one.trial, trial)


def chart_files(root: Path, run: RunDir) -> set[Path]:
    """Return the files that a bundle may hold of the charts of a run, and of what they rest on."""
    files: set[Path] = set()
    for exp_id in charted(run.path):
        files |= {run.path / CHARTS / exp_id / name for name in (DATA, CSV, CHART, FRESH)}
        try:
            found = generations(run.results, exp_id, run.path.parent, bundled=places_in(root, run))
            files |= {source for source, _ in rests_on(found, lambda run: run)}
        except UNREADABLE:
            continue  # the check of this chart says so
    return files
