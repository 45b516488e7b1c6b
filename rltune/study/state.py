"""Where a study stands, read from the run folders of its sweeps: it keeps no queue of its own.

A decision to promote is recorded once, in `study.json`, so that a sweep that has begun goes on
under it even if its source gets more seeds later.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltune.analysis.seed_blocks import Due, due_trials
from rltune.errors import Problem, SpecError, StoreError
from rltune.lineage.row import LineageRow
from rltune.lineage.table import rows_in
from rltune.runner.spend import usage_of_run
from rltune.spec.identity import diff_configs
from rltune.spec.load import LoadedSweep
from rltune.spec.yamlfile import read_yaml
from rltune.store.files import read_json, write_json_atomic
from rltune.store.jsonl import read_metrics
from rltune.store.rundir import RunDir, trial_status
from rltune.store.service_usage import ServiceUsage
from rltune.study.files import write_sweep
from rltune.study.load import Study, load_as_asked
from rltune.study.promotion import Promotion, promoted_data, promotion_of, rows_of_run
from rltune.study.queue import Used
from rltune.study.schema import StudySweep
from rltune.types import TrialStatus

DECISIONS = "study.json"
"""File of a study's folder: sweep -> what was promoted into it."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one sweep of a study stands."""

    sweep: StudySweep  # its place in the study
    loaded: LoadedSweep  # as it runs; as its own file has it while its source is not finished
    run: RunDir  # its run folder, which may not exist yet
    due: Due  # its trials as planned by now, and which of them may still be run
    statuses: Mapping[str, TrialStatus]  # trial id -> where it is
    promotion: Promotion | None  # what was promoted into it; None without, or before its time
    diff: Mapping[str, tuple[Any, Any]]  # key -> value in its own file and as it runs
    is_settled: bool  # whether what it holds is known: its source, if any, is finished

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to run: no trial, and no look at seeds until decided."""
        if not self.is_settled or self.due.looks_follow:
            return False
        return all(self.statuses[trial_id].is_finished for trial_id in self.due.wanted)

    @property
    def counts(self) -> Counter[str]:
        """How many trials are where."""
        return Counter(str(status) for status in self.statuses.values())


def standings(study: Study, runs_dir: Path, *, work: Path | None = None) -> list[Standing]:
    """Return where each sweep stands, in the order of the study; decides what is due to be decided.

    Args:
        study: The study.
        runs_dir: Folder of the run folders.
        work: Where sweep files with what was promoted are written, and no decision is recorded;
            None: the study's own folder, where both are kept.

    Raises:
        SpecError: A promotion does not fit the sweep that it is for.
        StoreError: A record cannot be read.

    """
    found: dict[str, Standing] = {}
    own = study.folder(runs_dir).path
    for sweep in study.spec.sweeps:
        source = found.get(sweep.source)
        promotion = None
        if source is not None and source.is_finished:
            promotion = _decided(own / DECISIONS, sweep, source, is_kept=work is None)
        found[sweep.name] = _standing(study, runs_dir, work or own, sweep, promotion)
    return list(found.values())


def _standing(
    study: Study, runs_dir: Path, place: Path, sweep: StudySweep, promotion: Promotion | None
) -> Standing:
    original = study.originals[sweep.name]
    loaded = original
    if promotion is not None:
        loaded = _promoted(study, place / sweep.name, sweep, promotion)
    run = RunDir((runs_dir / loaded.run_name).resolve())
    due = due_trials(run, loaded)
    return Standing(
        sweep,
        loaded,
        run,
        due,
        {spec.trial_id: trial_status(run.trial(spec.trial_id)) for spec in due.specs},
        promotion,
        diff_configs(original.control.config, loaded.control.config),
        is_settled=promotion is not None or not sweep.source,
    )


def _decided(path: Path, sweep: StudySweep, source: Standing, *, is_kept: bool) -> Promotion:
    """Return what is promoted into a sweep, as a file of decisions has it, or decided now."""
    known = read_decisions(path)
    if sweep.name in known and known[sweep.name].run == source.run.path.name:
        return known[sweep.name]
    inherited = source.promotion.keys if source.promotion is not None else {}
    run = source.run
    decision = promotion_of(run.path.name, rows_of_run(run), source.loaded, inherited)
    if is_kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomic(path, {**known, sweep.name: decision})
    return decision


def read_decisions(path: Path) -> dict[str, Promotion]:
    """Return name of a sweep -> what was promoted into it; raises StoreError."""
    known = read_json(path) if path.exists() else {}
    try:
        return {name: Promotion(**one) for name, one in known.items()}
    except (TypeError, AttributeError) as error:
        action = "Restore it from a copy; without it each is decided again."
        raise StoreError(Problem(str(path), "is no record of promotions.", action)) from error


def _promoted(study: Study, place: Path, sweep: StudySweep, promotion: Promotion) -> LoadedSweep:
    """Write a sweep file with what was promoted, beside links to its configs, and load it."""
    original = study.originals[sweep.name]
    file = read_yaml(original.path, kind="sweep file")
    if isinstance(file, Problem):
        raise SpecError(file)
    data = promoted_data(file, original, promotion)
    head = f"{original.path.name} in the study {study.spec.name}. {promotion.sentence}"
    path = place / "sweeps" / original.path.name
    write_sweep(path, data, head=head, configs_of=original.path)
    return load_as_asked(path, sweep)


def used(found: Sequence[Standing]) -> Used:
    """Return what the trials of a study have used, by lineage, metrics and usage files."""
    rows = rows_of(found)
    tokens = sum(_tokens(one.run) for one in found)
    usage = sum((usage_of_run(one.run) for one in found), ServiceUsage())
    return Used(sum(row.total_s or 0.0 for row in rows), tokens, usage.paid)


def rows_of(found: Sequence[Standing]) -> tuple[LineageRow, ...]:
    """Return the lineage rows of every sweep of a study, each from its own table."""
    return tuple(row for one in found for row in rows_in(one.run.results))


def _tokens(run: RunDir) -> int:
    """Return the generated tokens of the trials that have a folder, by their last record."""
    counts = []
    for trial in run.trial_dirs():
        rows = [r for r in read_metrics(trial.metrics).rows if "budget/generated_tokens" in r]
        counts.append(int(rows[-1]["budget/generated_tokens"]) if rows else 0)
    return sum(counts)
