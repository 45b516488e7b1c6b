"""A run folder as the reports read it: what was asked, what was planned, what each trial left."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rltune.comparability.audit import env_key
from rltune.comparability.records import TrialRecord
from rltune.errors import Problem, StoreError
from rltune.spec.yamlfile import YamlFile, read_yaml
from rltune.store.files import read_json, to_json
from rltune.store.jsonl import JsonlRead, read_jsonl, read_metrics
from rltune.store.looks import first_looks, read_looks
from rltune.store.rundir import RunDir, TrialDir
from rltune.types import SeedPlan, TrialSpec


@dataclass(frozen=True, slots=True)
class SweepFolder:
    """One run folder."""

    run: RunDir  # where its files are
    name: str
    title: str
    metric_name: str  # the held-out metric that decides
    metric_mode: str  # `max` or `min`
    specs: tuple[TrialSpec, ...]  # every trial: those of plan.json, then others with a folder
    question: str = ""  # that the sweep asks
    until: SeedPlan | None = None  # seeds until decided, as the last launch planned them


def is_run_folder(path: Path) -> bool:
    """Tell whether a folder was made by `rltune sweep`."""
    run = RunDir(path)
    return run.sweep.is_file() or run.plan.is_file()


def newest_run(runs_dir: Path) -> Path:
    """Return the run folder that was written to last.

    Raises:
        StoreError: There is none.

    """
    folders = run_folders(runs_dir)
    if not folders:
        raise StoreError(
            Problem(
                str(runs_dir),
                "there is no run folder here.",
                action="Give one, or --runs-dir, or start a sweep with `rltune sweep FILE`.",
            )
        )
    return max(folders, key=lambda path: (_last_written(RunDir(path)), path.name))


def run_folders(runs_dir: Path) -> list[Path]:
    """Return the run folders in a folder, by name."""
    return [path for path in _children(runs_dir) if is_run_folder(path)]


def _children(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def _last_written(run: RunDir) -> float:
    written = (run.ledger, run.plan, run.sweep)
    return max(path.stat().st_mtime for path in written if path.exists())


def find_run(given: Path | None, runs_dir: Path) -> RunDir:
    """Return the run folder that a person means: the one given, or the newest.

    Raises:
        StoreError: It is not a run folder.

    """
    if given is None:
        return RunDir(newest_run(runs_dir))
    if is_run_folder(given):
        return RunDir(given)
    if not given.is_dir():
        what, action = "there is no such folder.", ""
    elif given.parent.name == "trials" and is_run_folder(given.parent.parent):
        what, action = "this is one trial.", f"Give its run folder, {given.parent.parent}."
    else:
        inside = [path for path in _children(given) if is_run_folder(path)]
        what = "this is not a run folder; it has no sweep.yaml."
        action = f"Give one inside it, such as {inside[0]}." if inside else ""
    allowed = "" if action else "Run folders are <runs-dir>/<sweep>-<hash8>."
    raise StoreError(Problem(str(given), what, allowed, action))


def read_folder(run: RunDir) -> SweepFolder:
    """Read what was asked and planned.

    Raises:
        StoreError: Neither sweep.yaml nor a plan can be read.

    """
    file = read_yaml(run.sweep, kind="sweep file")
    if isinstance(file, Problem):
        raise StoreError(file)
    metric = file.data.get("metric")
    metric = metric if isinstance(metric, Mapping) else {}
    return SweepFolder(
        run,
        name=_text(file, "name", run.path.name),
        title=_text(file, "title", ""),
        metric_name=str(metric.get("name", "heldout/success_rate")),
        metric_mode=str(metric.get("mode", "max")),
        specs=tuple(_specs(run)),
        question=_text(file, "question", ""),
        until=planned_looks(run),
    )


def read_plan(run: RunDir) -> Mapping[str, Any]:
    """Return what plan.json holds; nothing where there is none, or no object in it.

    Raises:
        StoreError: It is not JSON.

    """
    plan = read_json(run.plan) if run.plan.is_file() else {}
    return plan if isinstance(plan, dict) else {}


def planned_looks(run: RunDir) -> SeedPlan | None:
    """Return the plan of seeds until decided; None for a list of seeds, and without a plan.

    Raises:
        StoreError: It cannot be read.

    """
    until = read_plan(run).get("until")
    if until is None:
        return None
    try:
        return SeedPlan(**until)
    except TypeError as error:
        what = f"`until` is not a plan of seeds ({error})."
        raise StoreError(Problem(str(run.plan), what, action="Restore the file.")) from error


def _text(file: YamlFile, key: str, default: str) -> str:
    value = file.data.get(key)
    return value if isinstance(value, str) else default


def _specs(run: RunDir) -> Iterator[TrialSpec]:
    """Yield the planned trials, then those of earlier launches with other seeds."""
    planned = _planned(run.plan)
    yield from planned
    known = {spec.trial_id for spec in planned}
    for trial in run.trial_dirs():
        if trial.trial_id not in known and trial.spec.is_file():
            yield trial.read_spec()


def _planned(path: Path) -> list[TrialSpec]:
    if not path.is_file():
        return []
    plan = read_json(path)
    rows: Any = plan.get("trials") if isinstance(plan, dict) else plan
    names = {field.name for field in fields(TrialSpec)}
    try:
        return [TrialSpec(**{key: row[key] for key in names}) for row in rows]
    except (TypeError, KeyError) as error:
        raise StoreError(
            Problem(
                str(path),
                f"does not hold a list of trials ({error!r}).",
                action="Another version of rltune wrote it; run the sweep again to rewrite it.",
            )
        ) from error


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """The records of all trials, and what in their files could not be read."""

    records: tuple[TrialRecord, ...]
    problems: tuple[Problem, ...]


def read_records(folder: SweepFolder) -> RecordsRead:
    """Read every trial of a run folder."""
    problems: list[Problem] = []
    records = [
        read_record(folder.run.trial(spec.trial_id), spec, problems) for spec in folder.specs
    ]
    if folder.until is not None:
        first = first_looks(read_looks(folder.run.looks))
        records = [
            replace(one, until=folder.until, look=first.get((one.spec.condition, one.spec.seed)))
            for one in records
        ]
    return RecordsRead(tuple(records), tuple(problems))


def read_record(trial: TrialDir, spec: TrialSpec, problems: list[Problem]) -> TrialRecord:
    """Read one trial; what cannot be read is added to `problems`."""
    # The markers first: a trial that ends meanwhile must not have a result beside half its metrics.
    result, failure = trial.read_done(), trial.read_failed()
    return TrialRecord(
        spec=spec,
        provenance=_provenance(trial),
        metrics=_steps(read_metrics(trial.metrics), problems),
        heldout=_steps(read_jsonl(trial.heldout), problems),
        result=result,
        failure=to_json(failure) if failure is not None else None,
    )


def _provenance(trial: TrialDir) -> Mapping[str, Any]:
    if not trial.provenance.exists():
        return {}
    content = read_json(trial.provenance)
    if not isinstance(content, dict):
        raise StoreError(Problem(str(trial.provenance), "does not hold a JSON object."))
    return content


def _steps(read: JsonlRead, problems: list[Problem]) -> tuple[dict[str, Any], ...]:
    """Return the rows that name their step."""
    problems.extend(read.problems)
    return tuple(row for row in read.rows if isinstance(row.get("step"), int))


def manifest_of(run: RunDir, record: TrialRecord) -> Mapping[str, Any]:
    """Return the task manifest that a trial was evaluated on; empty when there is none."""
    for path in (run.tasks(env_key(record)), run.tasks()):
        if path.is_file():
            content = read_json(path)
            return content if isinstance(content, dict) else {}
    return {}
