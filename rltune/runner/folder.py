"""The run folder of a sweep: question, proof, plan, tasks; and the recorder of its launches."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rltune.comparability.findings import ComparabilityReport
from rltune.errors import InputError, Problem, StoreError
from rltune.lineage.record import Proposal, disqualified_by, domain_of
from rltune.runner.recorder import Recorder, open_recorder
from rltune.spec.identity import canonical_json, sha256_hex
from rltune.spec.load import HASH_IN_NAME, LoadedSweep
from rltune.spec.plan import plan_json
from rltune.spec.schema.sweep import SweepSpec
from rltune.spec.schema.trial import TrialConfig
from rltune.store.files import dumps, read_json, to_json, write_json_atomic, write_text_atomic
from rltune.store.inputs import changed_since
from rltune.store.run_folder import read_plan
from rltune.store.rundir import RunDir, TrialDir, trial_status
from rltune.trainer.inputs import task_inputs
from rltune.trainer.tasks import require_tasks
from rltune.types import TrialSpec
from rltune_envs.splits import Manifest

_LAUNCH = re.compile(r"launch-(\d+)")


@dataclass(frozen=True, slots=True)
class FrozenTasks:
    """A manifest file and its digest."""

    path: Path
    sha256: str


def next_launch(run: RunDir) -> str:
    """Return the name of a launch that this folder has not seen: `launch-0001`, then on."""
    names = [path.name for path in run.tune.iterdir()] if run.tune.is_dir() else []
    numbers = [int(match[1]) for name in names if (match := _LAUNCH.fullmatch(name))]
    return f"launch-{max(numbers, default=0) + 1:04d}"


def freeze_all(
    run: RunDir, specs: Sequence[TrialSpec], *, base: Path = Path()
) -> dict[str, FrozenTasks]:
    """Return trial id -> its frozen tasks; a manifest is built once and then only read.

    Args:
        run: The run folder.
        specs: The trials.
        base: Folder to which relative paths in their configs refer.

    What was drawn from files that have changed since is drawn anew: no trial has measured anything
    on it, or `require_same_inputs` would have refused.

    Raises:
        InputError: An env has too few tasks, or one that cannot be used.
        StoreError: A manifest was edited, or is not the one that the plan was made with.

    """
    sections = {_tasks_key(spec.config): spec.config for spec in specs}
    names = _manifest_paths(run, sections)
    before = _planned_tasks(run)
    frozen = {}
    for key, config in sections.items():
        path = names[key]
        is_stale = bool(changed_since(_drawn_from(path), base))
        is_kept = path.exists() and not is_stale
        manifest = _read_manifest(path) if is_kept else _build_manifest(path, config, base)
        digest = manifest.sha256
        if is_kept and before.get(path.name, digest) != digest:
            what = f"holds other tasks ({digest[:10]}) than the plan ({before[path.name][:10]})."
            raise StoreError(Problem(str(path), what, action=_RESTORE))
        frozen[key] = FrozenTasks(path, digest)
    return {spec.trial_id: frozen[_tasks_key(spec.config)] for spec in specs}


def manifest_for(
    run: RunDir, config: Mapping[str, Any], *, parent: Mapping[str, Any], sha256: str, base: Path
) -> Path:
    """Return the file of the frozen tasks of a trial that was made from another.

    They are those of its parent, unless its config asks for others; those are drawn once and kept
    in the run folder beside them.

    Args:
        run: The run folder.
        config: Config of the trial.
        parent: Config of the trial that it was made from.
        sha256: Digest of the parent's tasks, from its provenance.
        base: Folder to which relative paths in the config refer.

    Raises:
        InputError: An env has too few tasks, or one that cannot be used.
        StoreError: The parent's tasks are gone or edited.

    """
    if _tasks_key(config) == _tasks_key(parent):
        for path in sorted(run.path.glob("tasks*.json")):
            if _read_manifest(path).sha256 == sha256:
                return path
        what = f"no tasks*.json here holds the tasks of the trial ({sha256[:10]})."
        action = "Restore the file as the sweep wrote it."
        raise StoreError(Problem(str(run.path), what, action=action))
    path = run.tasks(_tasks_key(config))
    if path.exists() and not changed_since(_drawn_from(path), base):
        _read_manifest(path)
    else:
        _build_manifest(path, config, base)
    return path


_RESTORE = "Restore the file, or start over in another --runs-dir."


def _tasks_key(config: Mapping[str, Any]) -> str:
    """Return the key of a manifest; two configs with the same key share the file."""
    gate = config["gate"]
    counts = {"tasks": gate["tasks"], "test_tasks": gate["test_tasks"]}
    return sha256_hex(canonical_json({**counts, "env": config["env"], "reward": config["reward"]}))


def _manifest_paths(run: RunDir, sections: Mapping[str, Mapping[str, Any]]) -> dict[str, Path]:
    """Name each manifest, after its env section if there are several, as reports expect."""
    if len(sections) == 1:
        return {key: run.tasks() for key in sections}
    named = {
        key: run.tasks(sha256_hex(canonical_json(config["env"])))
        for key, config in sections.items()
    }
    if len(set(named.values())) == len(named):
        return named
    return {key: run.tasks(key) for key in sections}


def _build_manifest(path: Path, config: Mapping[str, Any], base: Path) -> Manifest:
    checked = TrialConfig.model_validate_json(dumps(config))
    inputs = RunDir(path.parent).inputs  # first: a file of tasks promises that they are known
    known = read_json(inputs) if inputs.exists() else {}
    path.unlink(missing_ok=True)
    write_json_atomic(inputs, {**known, path.name: task_inputs(checked, base)})
    manifest = require_tasks(checked, base)
    write_json_atomic(path, manifest.to_json())
    return manifest


def _drawn_from(path: Path) -> dict[str, str]:
    """Return the files that a manifest was drawn from -> sha256; empty for an older one."""
    inputs = RunDir(path.parent).inputs
    known = read_json(inputs) if inputs.exists() else {}
    return dict(known.get(path.name, {})) if isinstance(known, dict) else {}


def _read_manifest(path: Path) -> Manifest:
    try:
        return Manifest.from_json(read_json(path))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(Problem(str(path), f"{error}.", action=_RESTORE)) from error


def _planned_tasks(run: RunDir) -> dict[str, str]:
    tasks = read_plan(run).get("tasks", {})
    return {str(name): str(digest) for name, digest in tasks.items()}


def planned_ids(run: RunDir) -> dict[str, str]:
    """Return identity of the config -> trial id, of every trial in the plan; empty without one."""
    trials = read_plan(run).get("trials", [])
    return {str(trial["config_hash"]): str(trial["trial_id"]) for trial in trials}


def as_begun(run: RunDir, specs: Sequence[TrialSpec]) -> tuple[TrialSpec, ...]:
    """Return the trials, those that have begun with the prediction that they began with.

    One that was edited since may know what came. It counts for the trials that are still to begin.
    """
    return tuple(_as_begun(run.trial(spec.trial_id), spec) for spec in specs)


def _as_begun(trial: TrialDir, spec: TrialSpec) -> TrialSpec:
    with suppress(StoreError):  # it has not begun, or its record is torn
        return replace(spec, expected_delta=trial.read_spec().expected_delta)
    return spec


def edited_predictions(asked: Sequence[TrialSpec], begun: Sequence[TrialSpec]) -> list[str]:
    """Return a line on each prediction that was edited after trials began with another one.

    Args:
        asked: The trials as the sweep file has them now.
        begun: The same, as `as_begun` returns them.

    """
    seeds: dict[tuple[str, str, str], list[str]] = {}
    for spec, begun_spec in zip(asked, begun, strict=True):
        if begun_spec.expected_delta != spec.expected_delta:
            key = (spec.condition, begun_spec.expected_delta, spec.expected_delta)
            seeds.setdefault(key, []).append(str(spec.seed))
    return [
        f"{condition}: what is expected was edited to {_told(new)} after trials began; "
        f"seed{'s' * (len(some) > 1)} {', '.join(some)} keep{'s' * (len(some) == 1)} {_told(old)}"
        for (condition, old, new), some in seeds.items()
    ]


def _told(prediction: str) -> str:
    return repr(prediction) if prediction else "nothing"


def sweep_recorder(
    run: RunDir,
    sweep: SweepSpec,
    specs: Sequence[TrialSpec],
    *,
    commit: str,
    confounded: str,
    shared: Path | None,
) -> Recorder:
    """Return the recorder of a run folder for the next launch of its sweep.

    Args:
        run: The run folder.
        sweep: The sweep.
        specs: Its trials.
        commit: Code of the driver.
        confounded: Why it runs although its proof failed; empty when the proof holds.
        shared: Table beyond this sweep that gets a copy of every row.

    Raises:
        StoreError: See `open_recorder`.

    """
    return open_recorder(
        run,
        launch=next_launch(run),
        metric=(sweep.metric.name, sweep.metric.mode),
        commit=commit,
        disqualified=disqualified_by(confounded),
        shared=shared,
        domains=[domain_of(spec) for spec in specs],
        proposal=Proposal(sweep.hypothesis, sweep.specialist, sweep.parent),
    )


def write_folder(
    run: RunDir,
    loaded: LoadedSweep,
    report: ComparabilityReport,
    specs: Sequence[TrialSpec],
    tasks: Mapping[str, FrozenTasks],
    *,
    allowed: str | None,
) -> None:
    """Write sweep.yaml, comparability.json and plan.json of this launch.

    The plan comes last: a folder with a plan is whole.
    """
    write_text_atomic(run.sweep, loaded.text)
    proof = {**to_json(report), "allow_confounded": allowed}
    write_json_atomic(run.comparability, proof)
    digests = {frozen.path.name: frozen.sha256 for frozen in tasks.values()}
    write_json_atomic(run.plan, plan_json(loaded, specs, tasks=digests))


def unfinished_before(runs_dir: Path, loaded: LoadedSweep) -> list[RunDir]:
    """Return unfinished runs that the same file and options made, when they resolved otherwise.

    Their name differs because a file that the sweep names was edited since, or rltune's config keys
    are newer.
    """
    folders = sorted(runs_dir.glob(f"{loaded.spec.name}-{'?' * HASH_IN_NAME}"))
    found = [RunDir(folder) for folder in folders if folder.name != loaded.run_name]
    return [run for run in found if _is_same_question(run, loaded) and not _is_finished(run)]


def _is_same_question(run: RunDir, loaded: LoadedSweep) -> bool:
    try:
        plan: Any = read_json(run.plan)
        same = {
            "profile": loaded.profile,
            "overrides": list(loaded.overrides),
            "seeds": list(loaded.seeds),
        }
        is_same_text = run.sweep.read_text(encoding="utf-8") == loaded.text
        return is_same_text and all(plan.get(key) == value for key, value in same.items())
    except (InputError, OSError, UnicodeDecodeError, AttributeError):
        return False  # no run folder, or none that can be read


def _is_finished(run: RunDir) -> bool:
    trials = read_json(run.plan)["trials"]
    return all(trial_status(run.trial(str(trial["trial_id"]))).is_finished for trial in trials)
