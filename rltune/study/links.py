"""The links of a study's evidence: each yields where one record contradicts another."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rltune.analysis.tables import TrialRow
from rltune.errors import Problem, SpecError
from rltune.judge.budget import usage_in
from rltune.lineage.across import parent_row
from rltune.lineage.share import copy_of
from rltune.lineage.table import rows_in
from rltune.report.render import plural
from rltune.spec.problems import show
from rltune.spec.yamlfile import read_yaml
from rltune.store.files import read_json, to_json
from rltune.store.jsonl import read_jsonl
from rltune.store.rundir import RunDir
from rltune.study.load import Study
from rltune.study.promotion import promotion_of, rows_of_run, verdicts_of_run
from rltune.study.proposal import read_proposal
from rltune.study.records import (
    ACCEPTED,
    CALLS,
    PROPOSALS,
    REFUSED,
    UNANSWERED,
    base_of,
    proposed_sweep,
    write_proposed,
)
from rltune.study.state import DECISIONS, Standing

_MADE_BY_COPYING = ("exp_id", "parent_exp", "baseline_exp", "notes")


@dataclass(frozen=True, slots=True)
class Evidence:
    """A study as its records give it."""

    study: Study  # with what was proposed and accepted
    own: RunDir  # the study's folder
    found: Sequence[Standing]  # where each of its sweeps stands

    @property
    def by_name(self) -> Mapping[str, Standing]:
        """Name of a sweep -> where it stands."""
        return {one.sweep.name: one for one in self.found}

    @property
    def begun(self) -> Iterator[Standing]:
        """The sweeps that have a run folder."""
        return (one for one in self.found if one.is_settled and one.run.plan.is_file())


def promotions(evidence: Evidence) -> Iterator[str]:
    """Yield where a decision is not what the verdict of its source comes to."""
    path = evidence.own.path / DECISIONS
    for name, decision in (read_json(path) if path.is_file() else {}).items():
        one = evidence.by_name.get(name)
        source = evidence.by_name.get(one.sweep.source) if one is not None else None
        if one is None or source is None:
            continue  # it was taken out of the study file: its run is an other run
        if not source.run.plan.is_file():
            yield f"{DECISIONS}: {name}: {source.run.path.name}, which decides, is missing"
            continue
        inherited = source.promotion.keys if source.promotion is not None else {}
        seeds, rows, run = decision.get("seeds", ()), rows_of_run(source.run), source.run.path.name
        seen = [row for row in rows if not seeds or row.seed in seeds]
        again = to_json(asdict(promotion_of(run, seen, source.loaded, inherited)))
        for key, value in again.items():
            if key in decision and decision[key] != value:
                yield f"{DECISIONS}: {name}, {key}: {show(decision[key])}, recomputed {show(value)}"
        yield from _left_out(name, seeds, rows, one.run)


def _left_out(
    name: str, seeds: Sequence[int], source: Sequence[TrialRow], run: RunDir
) -> Iterator[str]:
    """Yield the seeds that had ended before a sweep began, and were not looked at for it.

    `source` has the trials of the sweep that decides, and `run` is the folder of the next one.
    """
    starts = [row.started for row in rows_of_run(run) if row.started] if run.plan.is_file() else []
    if not seeds or not starts:
        return
    for row in source:
        if row.seed not in seeds and "" < row.ended < min(starts):
            yield (
                f"{DECISIONS}: {name}, seeds: {show(list(seeds))} leaves out {row.seed}, which "
                f"ended in {row.run} before {name} began"
            )


def sweep_files(evidence: Evidence) -> Iterator[str]:
    """Yield where a sweep did not run as its file, with what was promoted into it, says."""
    for one in evidence.begun:
        resolved = _yaml(one.loaded.path)
        kept = evidence.own.path / one.sweep.name / "sweeps" / one.loaded.path.name
        if one.promotion is not None:
            where = f"{one.sweep.name}/sweeps/{one.loaded.path.name}"
            yield from _unequal(where, _yaml(kept) if kept.is_file() else None, resolved)
        where = f"{one.run.path.name}/sweep.yaml"
        yield from _unequal(where, _yaml(one.run.sweep), resolved)
        plan = read_json(one.run.plan)
        for key in ("profile", "overrides"):
            asked = to_json(getattr(one.loaded, key))
            if plan[key] != asked:
                yield f"{one.run.path.name}/plan.json: {key}: {plan[key]!r}, asked for {asked!r}"


def _yaml(path: Path) -> Mapping[str, Any]:
    file = read_yaml(path, kind="sweep file")
    if isinstance(file, Problem):
        raise SpecError(file)
    return file.data


def _unequal(
    where: str, there: Mapping[str, Any] | None, again: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the keys of a sweep file that are not what comes out again."""
    if there is None:
        yield f"{where} is missing"
        return
    for key in dict.fromkeys((*there, *again)):
        old, new = (show(one[key]) if key in one else "nothing" for one in (there, again))
        if old != new:
            yield f"{where}: {key}: {old}, recomputed {new}"


def parents(evidence: Evidence) -> Iterator[str]:
    """Yield the controls whose row does not depart from the row that was promoted."""
    runs = evidence.own.path.parent
    for one in evidence.begun:
        if one.promotion is None or not one.promotion.row:
            continue
        for row in rows_in(one.run.results):
            if row.condition != one.loaded.control.label or not row.is_of_sweep:
                continue
            expected = parent_row(runs, one.promotion.row, row.seed)
            known = {expected}
            if row.seed not in one.promotion.seeds:  # its source may have got the seed since
                known.add(parent_row(runs, one.promotion.row, None))
            if row.parent_exp not in known:
                yield (
                    f"{one.run.path.name}/results.tsv: {row.exp_id}, parent_exp: "
                    f"{row.parent_exp or 'nothing'}, promoted was {expected}"
                )


def shared_rows(evidence: Evidence) -> Iterator[str]:
    """Yield where a row of the study's lineage is not that of its run."""
    for row in rows_in(evidence.own.results):
        run, _, name = row.exp_id.rpartition("/")
        own = {one.exp_id: one for one in rows_in(RunDir(evidence.own.path.parent / run).results)}
        if name not in own:
            yield f"results.tsv: {row.exp_id} is no row of runs/{run}/results.tsv"
            continue
        for key, value in asdict(copy_of(own[name], run)).items():
            there = getattr(row, key)
            if key not in _MADE_BY_COPYING and str(there) != str(value):
                yield f"results.tsv: {row.exp_id}, {key}: {there}, its run has {value}"


def proposal_records(own: RunDir) -> Iterator[str]:
    """Yield where the records of proposals contradict each other, or the log of calls."""
    read = read_jsonl(own.path / PROPOSALS)
    yield from (f"{PROPOSALS}: {problem}" for problem in read.problems)
    number, calls = 1, 0
    for line, record in enumerate(read.rows, start=1):
        where = f"{PROPOSALS}:{line}"
        outcome, name = record["outcome"], f"proposed-{number}"
        calls += record["calls"]
        number += outcome == ACCEPTED
        if record["name"] != name:
            yield f"{where}: name: {record['name']}, expected {name}"
        if outcome not in (ACCEPTED, REFUSED, UNANSWERED):
            yield f"{where}: outcome: {outcome!r}"
        if (outcome == ACCEPTED) == bool(record["problems"]):
            yield f"{where}: {outcome} with {plural(len(record['problems']), 'problem')}"
        if outcome == ACCEPTED and not {"source", "question"} <= set(record):
            yield f"{where}: accepted without a source or a question"
    logged = usage_in(read_jsonl(own.path / CALLS).rows).calls
    if calls > logged:
        yield f"{PROPOSALS}: {plural(calls, 'call')}, {CALLS} has {logged}"


def proposals(evidence: Evidence, work: Path) -> Iterator[str]:
    """Yield where the sweep of an accepted proposal is not what was answered.

    `work` is a folder to write it to again.
    """
    for line, record in enumerate(read_jsonl(evidence.own.path / PROPOSALS).rows, start=1):
        if record["outcome"] == ACCEPTED:
            yield from _as_answered(evidence, record, f"{PROPOSALS}:{line}", work)


def _as_answered(
    evidence: Evidence, record: Mapping[str, Any], where: str, work: Path
) -> Iterator[str]:
    """Yield where the sweep file of a proposal is not what was answered."""
    name, source = str(record["name"]), evidence.by_name.get(str(record.get("source")))
    if source is None:
        yield f"{where}: source: {record.get('source')!r} is no sweep of the study"
        return
    try:
        proposal = read_proposal(str(record["answer"]))
    except SpecError as error:
        yield f"{where}: answer: it is no proposal: {str(error).splitlines()[0]}"
        return
    if record.get("question") != proposal.question:
        yield f"{where}: question: {record.get('question')!r}, its answer has {proposal.question!r}"
    base = base_of(source, verdicts_of_run(source.run))
    write_proposed(evidence.study, work, name, proposal, base)
    again = _yaml(work / proposed_sweep(name))
    there = evidence.own.path / proposed_sweep(name)
    yield from _unequal(proposed_sweep(name), _yaml(there) if there.is_file() else None, again)
