"""What of a run folder a bundle holds: its records, and the chosen checkpoints on demand."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rltune.report.finding.collect import public
from rltune.store.files import read_json, write_json_atomic
from rltune.store.run_folder import SweepFolder
from rltune.store.rundir import RunDir, TrialDir

_OF_RUN = (
    *("sweep.yaml", "plan.json", "comparability.json", "results.tsv", "inputs.json"),
    *("looks.jsonl", "ledger.jsonl"),
)
_OF_TRIAL = (
    *("spec.json", "config.yaml", "provenance.json", "metrics.jsonl", "heldout.jsonl"),
    *("service.json", "DONE", "FAILED", "card.json", "origin.json", "prompt.txt"),
)


def copy_run(folder: SweepFolder, run: RunDir, *, has_checkpoints: bool) -> None:
    """Copy the records of a run into a folder, without what names its machine."""
    for source, target in copied(folder, run, has_checkpoints=has_checkpoints):
        copy_record(source, target)


def copy_record(source: Path, target: Path) -> None:
    """Copy one record of a run, without what names its machine."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.name == "provenance.json":
        write_json_atomic(target, public(read_json(source)))
    elif source.name == "plan.json":
        write_json_atomic(target, _portable(read_json(source)))
    else:
        shutil.copyfile(source, target)


def _portable(plan: Any) -> Any:
    """Return a plan that names the sweep file by its folder and name where its path was whole."""
    if not isinstance(plan, dict) or not Path(str(plan.get("file", ""))).is_absolute():
        return plan
    return {**plan, "file": "/".join(Path(plan["file"]).parts[-2:])}


def copied(
    folder: SweepFolder, run: RunDir, *, has_checkpoints: bool
) -> Iterator[tuple[Path, Path]]:
    """Yield the files of a run that a bundle holds, and where in the folder `run`."""
    own = folder.run.path
    yield from named_records(own, run.path, [*_OF_RUN, *task_files(own)])
    for spec in folder.specs:
        trial, target = folder.run.trial(spec.trial_id), run.trial(spec.trial_id)
        yield from records_of_trial(trial, target)
        if has_checkpoints:
            yield from _chosen(trial, target)


def records_of_trial(trial: TrialDir, target: TrialDir) -> Iterator[tuple[Path, Path]]:
    """Yield the records of a trial, and where in the folder `target`."""
    return named_records(trial.path, target.path, _OF_TRIAL)


def named_records(own: Path, there: Path, names: Iterable[str]) -> Iterator[tuple[Path, Path]]:
    """Yield the files of a folder that have one of these names, and where in the folder `there`."""
    return ((own / name, there / name) for name in names if (own / name).is_file())


def task_files(run: Path) -> list[str]:
    """Return the names of the files of frozen tasks of a run folder."""
    return sorted(path.name for path in run.glob("tasks*.json"))


def _chosen(trial: TrialDir, target: TrialDir) -> Iterator[tuple[Path, Path]]:
    """Yield the files of the checkpoint that the gate chose."""
    result = trial.read_done()
    if result is None:
        return
    source = trial.checkpoint(result.best_step)
    for path in sorted(source.rglob("*")):
        if path.is_file():
            yield path, target.checkpoint(result.best_step) / path.relative_to(source)
