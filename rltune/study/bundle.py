"""The bundle of a study: its own records, and the records and the finding of every run.

It is laid out as a runs dir, so that whoever has it can ask where the study stands as its author
did: standing.json and the page are what comes out.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rltune.errors import InputError, Problem, StoreError
from rltune.lineage.table import rows_in
from rltune.report.bundle.archive import seal
from rltune.report.bundle.charts import add_charts
from rltune.report.bundle.contents import copy_run
from rltune.report.finding.collect import collect
from rltune.report.finding.files import write_finding
from rltune.report.finding.records import Finding
from rltune.report.manifest import Code
from rltune.store.files import to_json, write_json_atomic, write_text_atomic
from rltune.store.lock import read_driver
from rltune.store.run_folder import read_folder
from rltune.store.rundir import RunDir
from rltune.study.kept import keep_configs, keep_files
from rltune.study.load import Study
from rltune.study.page import study_page
from rltune.study.records import (
    CALLS,
    PROPOSALS,
    PROPOSED,
    proposed_sweep,
    read_proposals,
    with_proposals,
)
from rltune.study.state import DECISIONS, Standing, read_decisions, standings, used
from rltune.study.view import study_json

KIND = "rltune-study-bundle-1"
RUNS, FINDINGS = "runs", "findings"  # its two folders: one of each run, by its name
STANDING, PAGE = "standing.json", "index.md"

_OWN = (DECISIONS, PROPOSALS, CALLS, "results.tsv")


@dataclass(frozen=True, slots=True)
class Bundled:
    """What was laid out."""

    standing: Mapping[str, Any]  # content of standing.json
    findings: Mapping[str, Finding]  # name of a run folder -> its finding


def build_study(
    study: Study, runs_dir: Path, root: Path, code: Code, *, place: str, has_checkpoints: bool
) -> Bundled:
    """Lay out the bundle of a study in an empty folder.

    Args:
        study: The study, without its proposals.
        runs_dir: Folder of the run folders; nothing in it is changed.
        root: Where the bundle is laid out.
        code: What makes it.
        place: How commands name the bundle: `paper.zip`.
        has_checkpoints: Whether the checkpoint that each trial's gate chose is in it.

    Raises:
        InputError: A file holds a secret, or the study is being run.
        StoreError: Nothing has run yet, a run folder that its records name is missing, or a chart
            of generations cannot be made from its records any more.

    """
    findings = {}
    names = _begun(study, runs_dir)
    lay_out_own(study, runs_dir, root / RUNS)
    for name in names:
        run, there = RunDir(runs_dir.resolve() / name), RunDir(root / RUNS / name)
        copy_run(read_folder(run), there, has_checkpoints=has_checkpoints)
        finding = collect(read_folder(there), code, name=name, place=place)
        write_finding(finding, root / FINDINGS / name)
        findings[name] = finding
    add_charts({(runs_dir / name).resolve(): RunDir(root / RUNS / name) for name in names}, root)
    with tempfile.TemporaryDirectory() as work:
        standing = standing_of(study, root / RUNS, Path(work))
    write_json_atomic(root / STANDING, standing)
    write_text_atomic(root / PAGE, study_page(standing, findings, place=place))
    seal(root, study.spec.name, kind=KIND)
    return Bundled(standing, findings)


def lay_out_own(study: Study, runs_dir: Path, runs: Path) -> None:
    """Copy the files of a study and its own records, proposals included, into another runs dir."""
    whole, own = with_proposals(study, runs_dir), study.folder(runs_dir).path
    there = runs / own.name
    keep_files(study, there)
    names = [*_OWN]
    for sweep in whole.spec.sweeps:
        original = whole.originals[sweep.name]
        if sweep.name not in study.originals:
            names.append(proposed_sweep(sweep.name))
            keep_configs(original, there / PROPOSED / sweep.name / "configs")
        if sweep.source:
            names.append(f"{sweep.name}/sweeps/{original.path.name}")
    for name in names:
        if (own / name).is_file():
            (there / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(own / name, there / name)


def _begun(study: Study, runs_dir: Path) -> list[str]:
    """Return the names of the run folders that are part of a study, in its order.

    Those of its sweeps that have begun, and all others that its records name: a sweep that was
    taken out of the study file has run all the same.
    """
    own = study.folder(runs_dir)
    with tempfile.TemporaryDirectory() as work:
        found = standings(with_proposals(study, runs_dir), runs_dir, work=Path(work))
    begun = [one.run.path.name for one in found if one.is_settled and one.run.plan.is_file()]
    names = list(dict.fromkeys([*begun, *named_runs(own)]))
    where = str(own.path)
    if not names:
        action = f"Run it: `rltune study {study.path}`."
        raise StoreError(Problem(where, "no sweep of this study has begun.", action=action))
    missing = [name for name in names if not (runs_dir / name).is_dir()]
    if missing:
        what = f"its records name {', '.join(missing)}, which is not in {runs_dir}."
        raise StoreError(Problem(where, what, action="Restore the run folder."))
    for run in (own, *(RunDir(runs_dir / name) for name in names)):
        if (driver := read_driver(run.lock)) is not None:
            what = f"is being run by process {driver.pid} on {driver.host}."
            action = "Wait until it ends, or stop it; the same command goes on later."
            raise InputError(Problem(str(run.path), what, action=action))
    return names


def named_runs(own: RunDir) -> list[str]:
    """Return the run folders that a study's decisions and its shared lineage name."""
    decisions = read_decisions(own.path / DECISIONS)
    names = [str(one.run) for one in decisions.values()]
    names += [row.exp_id.rpartition("/")[0] for row in rows_in(own.results)]
    return list(dict.fromkeys(filter(None, names)))


def standing_of(study: Study, runs: Path, work: Path) -> dict[str, Any]:
    """Return the content of standing.json: where the study stands, by the records of a runs dir.

    Args:
        study: The study, without its proposals.
        runs: The runs dir.
        work: Where sweep files with what was promoted are written.

    """
    whole, records = with_proposals(study, runs), read_proposals(study, runs)
    found = standings(whole, runs, work=work)
    told: dict[str, Any] = to_json(study_json(_by_names(whole), found, used(found), records))
    del told["proposals"]  # its own file has them whole
    for one, entry in zip(found, told["sweeps"], strict=True):
        is_begun = one.is_settled and one.run.plan.is_file()
        entry |= {"file": Path(one.sweep.file).name, "run": one.run.path.name if is_begun else None}
    return told | {"outcomes": _outcomes(records), "other_runs": list(_others(study, runs, found))}


def _by_names(study: Study) -> Study:
    """Return a study whose messages call its sweep files by their names, wherever they are."""
    originals = {
        name: replace(loaded, path=Path(loaded.path.name))
        for name, loaded in study.originals.items()
    }
    return replace(study, originals=originals)


def _outcomes(records: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    outcomes = [str(one["outcome"]) for one in records]
    return {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}


def _others(study: Study, runs: Path, found: Sequence[Standing]) -> Iterator[str]:
    known = {one.run.path.name for one in found if one.is_settled}
    return (name for name in named_runs(study.folder(runs)) if name not in known)
