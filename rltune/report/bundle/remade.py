"""The tables of a finding made again from the records of its run, its audit included."""

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import yaml

from rltune.report.bundle.archive import MOST
from rltune.report.bundle.charts import chart_files
from rltune.report.bundle.checkpoint import checkpoint_problems
from rltune.report.bundle.contents import copied
from rltune.report.finding.collect import collect
from rltune.report.finding.figures import figures_of
from rltune.report.finding.files import LINEAGE, MANIFEST, PAGE, SWEEP, TABLES, TRIALS
from rltune.report.finding.records import Finding
from rltune.report.finding.verify import UNREADABLE, Check, row_differences
from rltune.report.manifest import Code
from rltune.spec.identity import config_hash
from rltune.store.run_folder import read_folder
from rltune.store.rundir import RunDir, TrialDir
from rltune.types import TrialSpec

_KEY_COLUMNS = ("trial_id", "condition", "seed", "step")


def remade_check(run: RunDir, finding: Finding, *, names: tuple[str, str]) -> Check:
    """Return whether a finding, and each checkpoint, is what the records of its run give.

    `names` are those of the run's folder and of the finding's folder in the bundle.
    """
    try:
        problems = tuple(_differences(run, finding, *names))
    except (*UNREADABLE, yaml.YAMLError) as error:
        problems = (f"{names[0]}: the records cannot be read: {error}",)
    return Check("tables and audit, made again from the records", problems[:MOST])


def _differences(run: RunDir, finding: Finding, records: str, place: str) -> Iterator[str]:
    known = finding.manifest
    folder = read_folder(run)
    code = Code([], {}, known["rltune"]["commit"], known["rltune"]["source_sha256"])
    again = collect(folder, code, name=finding.name, metrics=finding.metrics, place=known["place"])
    for key, value in again.manifest.items():
        is_compared = key in known and key not in ("note", "versions")
        if is_compared and not _agrees(known[key], json.loads(json.dumps(value))):
            yield f"{place}/{MANIFEST}: {key} is not what the records give"
    if again.sweep != finding.sweep:
        yield f"{place}/{SWEEP} is not the sweep file of the run"
    if again.lineage_text != finding.lineage_text:
        yield f"{place}/{LINEAGE} is not the lineage of the run"
    for name in TABLES:
        yield from row_differences(
            f"{place}/{name}.csv",
            getattr(finding, name),
            getattr(again, name),
            [one for one in _KEY_COLUMNS if _has(finding, name, one)],
            finding.columns.get(name),
        )
    if again.recorded != finding.recorded:
        yield f"{place}/{TRIALS} is not what the records give"
    for spec in folder.specs:
        found = _of_trial(run.trial(spec.trial_id), spec)
        yield from (f"{records}: {spec.trial_id}: {text}" for text in found)


def _of_trial(trial: TrialDir, spec: TrialSpec) -> Iterator[str]:
    """Yield where a checkpoint or the config of a trial is not that of its records."""
    yield from checkpoint_problems(trial, spec)
    config = yaml.safe_load(trial.config.read_bytes()) if trial.config.is_file() else None
    if config is not None and config_hash(config) != spec.config_hash:
        yield "config.yaml is not the config of the trial"


def _agrees(known: object, again: object) -> bool:
    """Tell whether a JSON value says what comes out again, keys that came later apart."""
    if isinstance(known, dict) and isinstance(again, dict):
        return all(key in again and _agrees(known[key], again[key]) for key in known)
    if isinstance(known, list) and isinstance(again, list):
        return len(known) == len(again) and all(map(_agrees, known, again))
    return bool(known == again)


def _has(finding: Finding, table: str, column: str) -> bool:
    rows = getattr(finding, table)
    return bool(rows) and column in {one.name for one in fields(rows[0])}


def own_files(root: Path, run: RunDir, finding: Finding, place: Path) -> set[Path]:
    """Return the files that a bundle may hold of a run, its charts and its finding, there or not.

    Args:
        root: Folder of the bundle.
        run: The run in it.
        finding: Of the run.
        place: Folder of the finding.

    """
    folder = read_folder(run)
    tables = (f"{name}.csv" for name in TABLES)
    names = (MANIFEST, PAGE, SWEEP, LINEAGE, TRIALS, *tables, *figures_of(finding))
    records = {source for source, _ in copied(folder, run, has_checkpoints=True)}
    return records | {place / name for name in names} | chart_files(root, run)
