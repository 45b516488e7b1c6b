"""Verify the bundle of a study: what its sweeps show, and what followed from one to the next.

Each run is verified as a bundle of its own would be. Beside that the study is asked again where it
stands, from its file and these runs: promotions follow from verdicts, and what was promoted is what
ran; proposals are the answers that are recorded; the lineage of the study is that of its runs; and
what standing.json and the page say comes out again.
"""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rltune.report.bundle.archive import LIST, MOST, files_of, listed_check
from rltune.report.bundle.chart_check import chart_checks
from rltune.report.bundle.remade import own_files, remade_check
from rltune.report.bundle.run import strangers_check
from rltune.report.finding.files import MANIFEST
from rltune.report.finding.records import Finding
from rltune.report.finding.verify import (
    UNREADABLE,
    Check,
    SourcesAt,
    leaf_differences,
    line_differences,
    verify,
)
from rltune.report.render import plural
from rltune.store.files import read_json
from rltune.store.rundir import RunDir
from rltune.study.bundle import (
    FINDINGS,
    KIND,
    PAGE,
    RUNS,
    STANDING,
    lay_out_own,
    named_runs,
    standing_of,
)
from rltune.study.kept import STUDY, load_kept
from rltune.study.links import (
    Evidence,
    parents,
    promotions,
    proposal_records,
    proposals,
    shared_rows,
    sweep_files,
)
from rltune.study.load import Study
from rltune.study.page import study_page
from rltune.study.records import with_proposals
from rltune.study.state import standings


def verify_study(root: Path, *, sources_at: SourcesAt) -> tuple[dict[str, Finding], list[Check]]:
    """Return the findings of an unpacked bundle of a study, by run, and what was verified."""
    checks = [listed_check(root, kind=KIND)]
    findings: dict[str, Finding] = {}
    own: set[Path] = {root / LIST, root / STANDING, root / PAGE}
    for folder in _folders(root / RUNS):
        if (folder / STUDY).is_file():
            continue
        finding, check = _run_check(root, folder, sources_at)
        checks += [check, *chart_checks(root, RunDir(folder))]
        if finding is not None:
            findings[folder.name] = finding
            own |= own_files(root, RunDir(folder), finding, root / FINDINGS / folder.name)
    places = [folder for folder in _folders(root / RUNS) if (folder / STUDY).is_file()]
    if len(places) != 1:
        what = f"{RUNS} holds {plural(len(places), 'folder')} of a study, not one"
        return findings, [*checks, Check("study", (what,))]
    try:
        with tempfile.TemporaryDirectory() as work:
            for check in _study_checks(root, RunDir(places[0]), findings, own, Path(work)):
                checks.append(check)
    except UNREADABLE as error:
        what = f"a record cannot be read: {type(error).__name__}: {error}"
        checks.append(Check("what follows", tuple(what.splitlines()[:MOST])))
    return findings, checks


def _folders(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if one.is_dir()) if folder.is_dir() else []


def _run_check(root: Path, folder: Path, sources_at: SourcesAt) -> tuple[Finding | None, Check]:
    """Return the finding of a run, and all checks of it as one."""
    run, place = f"{RUNS}/{folder.name}", f"{FINDINGS}/{folder.name}"
    if not (root / place / MANIFEST).is_file():
        return None, Check(run, (f"{place}/{MANIFEST} is missing",))
    finding, checks = verify(root / place, sources_at=sources_at)
    found = [f"{place}: {text}" for check in checks for text in check.problems]
    if finding is not None:
        remade = remade_check(RunDir(folder), finding, names=(run, place))
        checks, found = [*checks, remade], [*remade.problems, *found]
    unseen = "; ".join(f"{check.name}: {check.unseen}" for check in checks if check.unseen)
    name = f"{run}: {plural(len(checks), 'check')} of records, tables, page and figures"
    return finding, Check(name, tuple(found[:MOST]), unseen)


def _study_checks(
    root: Path, own: RunDir, findings: Mapping[str, Finding], known: set[Path], work: Path
) -> Iterator[Check]:
    runs = root / RUNS
    yield _check("runs that its records name", _missing(own, findings))
    yield _check("records of proposals", proposal_records(own))
    study = load_kept(own.path)
    whole = with_proposals(study, runs)
    evidence = Evidence(whole, own, standings(whole, runs, work=work / "standing"))
    yield _check("runs of its sweeps", _foreign(evidence, findings))
    yield _check("promotions, by the verdicts of their sweeps", promotions(evidence))
    yield _check("sweeps as they ran, with what was promoted", sweep_files(evidence))
    yield _check("parents of the promoted controls", parents(evidence))
    yield _check("lineage of the study, row by row", shared_rows(evidence))
    yield _check("sweeps that were proposed, by the answers", proposals(evidence, work / "again"))
    again = standing_of(study, runs, work / "claims")
    yield _check("where it stands, and what it used", _standing(root, again))
    yield _check("every line of its page", _page(root, again, findings))
    yield strangers_check(root, known | _own_files(study, runs, own, work / "own"))


def _check(name: str, problems: Iterator[str]) -> Check:
    return Check(name, tuple(problems)[:MOST])


def _missing(own: RunDir, findings: Mapping[str, Finding]) -> Iterator[str]:
    for name in named_runs(own):
        if name not in findings:
            yield f"{RUNS}/{name} is missing; study.json or results.tsv of the study names it"


def _foreign(evidence: Evidence, findings: Mapping[str, Finding]) -> Iterator[str]:
    known = {*named_runs(evidence.own), *(one.run.path.name for one in evidence.begun)}
    for name in findings:
        if name not in known:
            yield f"{RUNS}/{name} is no run of the study"


def _standing(root: Path, again: Mapping[str, Any]) -> Iterator[str]:
    return leaf_differences(STANDING, read_json(root / STANDING), again)


def _page(root: Path, again: Mapping[str, Any], findings: Mapping[str, Finding]) -> Iterator[str]:
    place = next((str(one.manifest.get("place", "")) for one in findings.values()), "")
    text = (root / PAGE).read_text(encoding="utf-8")
    return line_differences(PAGE, text, study_page(again, findings, place=place))


def _own_files(study: Study, runs: Path, own: RunDir, work: Path) -> set[Path]:
    """Return the files that a bundle has of a study itself: those that laying it out makes."""
    lay_out_own(study, runs, work)
    return {runs / path.relative_to(work) for path in files_of(work)}
