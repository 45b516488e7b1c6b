"""Run a recorded trial again, unchanged, in a folder of its own, and compare bit for bit."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from rltune.errors import Problem, StoreError
from rltune.runner.single import Source, record_single, run_single, spec_to_repeat
from rltune.runner.software import Change, changes_since, software_now
from rltune.runner.trial import steps_done
from rltune.store.compare import Comparison, compare_trials
from rltune.store.failure import TrialFailure
from rltune.store.files import write_json_atomic
from rltune.store.origin import Origin, read_origin, write_origin
from rltune.store.provenance import read_provenance
from rltune.store.rundir import TrialDir
from rltune.types import RowStatus, TrialSpec, TrialStatus


class RerunVerdict(StrEnum):
    """Verdict of a rerun."""

    REPRODUCED = "reproduced"  # all that was compared is bit-equal
    OTHER_INPUTS = "not the same inputs"  # a file that the trial reads has another content
    OTHER_SOFTWARE = "not the same software"  # it differs, and so does what it ran on
    NOT_REPRODUCIBLE = "not reproducible"  # it differs on the same software and hardware class
    INCOMPLETE = "not compared"  # the rerun ended before the step that was to be compared


@dataclass(frozen=True, slots=True)
class Rerun:
    """A finished rerun."""

    trial: TrialDir  # its folder
    status: TrialStatus  # how it ended
    verdict: RerunVerdict  # what it shows
    last: int  # last training step that was to be compared
    changes: tuple[Change, ...]  # what differs between the software and hardware of both
    comparison: Comparison | None  # what was compared; None when there was nothing to compare


def rerun_trial(
    source: Source,
    *,
    steps: int | None,
    argv: tuple[str, ...],
    base: Path,
    on_start: Callable[[TrialDir, tuple[Change, ...]], None],
) -> Rerun:
    """Run a trial again from its records and compare.

    Nothing of the original is written. The repetition is no second seed: it lies under `reruns/`,
    and its lineage row is never kept.

    Args:
        source: The trial.
        steps: Stop after so many training steps and compare those; None runs to the end.
        argv: The command line, for the records.
        base: Folder to which relative paths in the config refer.
        on_start: Told the folder and what differs, before anything is trained.

    Raises:
        StoreError: The original has no step to compare, or its records cannot be used.

    """
    done = steps_done(source.trial)
    if done is None:
        what = "the trial has no metrics, so there is nothing to compare with."
        raise StoreError(Problem(str(source.trial.path), what, action="Run it first."))
    last = done if steps is None else min(steps, done)
    whole = source.trial.read_done() is not None
    spec = spec_to_repeat(source.spec, source.recorded, source=str(source.trial.config))
    trial = source.run.new_rerun(source.trial.trial_id)
    changes = changes_since(source.provenance, software_now(source.provenance, base))
    _prepare(source, trial, changes)
    on_start(trial, changes)
    stop_after = None if whole and last == done else last
    status = run_single(source, trial, spec, argv=argv, base=base, stop_after=stop_after)
    changes = changes_since(source.provenance, read_provenance(trial))
    reached = steps_done(trial)
    comparison = None
    has_result = status.is_finished and not status.is_failure
    if has_result or (reached is not None and reached >= last):
        comparison = compare_trials(source.trial, trial, last=last)
    again = Rerun(trial, status, _verdict(comparison, changes), last, changes, comparison)
    write_json_atomic(trial.verdict, verdict_json(source, again))
    _record(source, spec, again)
    return again


def _prepare(source: Source, trial: TrialDir, changes: tuple[Change, ...]) -> None:
    """Write where the rerun comes from, with the weights that its original started from."""
    before = read_origin(source.trial)
    folder = os.path.relpath(source.trial.path.resolve(), source.run.path.resolve())
    write_origin(
        trial,
        Origin(
            kind="rerun",
            parent=source.trial.trial_id,
            folder=folder,
            step=before.step if before else None,
            which=before.which if before else "",
            weights_sha256=before.weights_sha256 if before else "",
            software=tuple(map(str, changes)),
        ),
    )
    if source.trial.start.exists():
        link_or_copy(source.trial.start, trial.start)


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name; copy it where the file system has no links.

    A checkpoint's file is never written in place, so both names keep what they hold.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _verdict(comparison: Comparison | None, changes: tuple[Change, ...]) -> RerunVerdict:
    if comparison is None:
        return RerunVerdict.INCOMPLETE
    if any(change.is_input for change in changes):
        return RerunVerdict.OTHER_INPUTS
    if comparison.difference is None:
        return RerunVerdict.REPRODUCED
    has_changed = any(change.decides for change in changes)
    return RerunVerdict.OTHER_SOFTWARE if has_changed else RerunVerdict.NOT_REPRODUCIBLE


def verdict_json(source: Source, again: Rerun) -> dict[str, Any]:
    """Return the verdict as plain data: verify.json, and `--json`."""
    return {
        "trial": source.trial.trial_id,
        "folder": str(again.trial.path),
        "status": again.status,
        "verdict": again.verdict,
        "last_step": again.last,
        "changes": list(again.changes),
        "comparison": again.comparison,
    }


def _record(source: Source, spec: TrialSpec, again: Rerun) -> None:
    """Append the rerun's row. An attempt stopped on purpose says nothing about the trial."""
    failure = again.trial.read_failed()
    comparison = again.comparison
    if failure is not None and comparison is not None:
        again.trial.clear_failed()
        reason = f"ended after step {again.last} as requested, to compare a prefix"
        again.trial.write_failed(
            TrialFailure(RowStatus.HARNESS_ABORT, reason, "", failure.step, failure.attempt)
        )
    notes = f"rerun of {source.trial.trial_id}: {again.verdict}"
    if comparison is not None and comparison.difference is not None:
        notes += f"; first difference: {comparison.difference}"
    if again.changes:
        notes += f"; changed since: {', '.join(change.name for change in again.changes)}"
    differs = comparison is not None and comparison.difference is not None
    record_single(
        source,
        again.trial,
        spec,
        exp_id=f"{source.trial.trial_id}.r{int(again.trial.path.parent.name)}",
        hypothesis=f"{spec.condition}, seed {spec.seed}, run again",
        notes=notes,
        counts=False,
        disqualified="its repetition differs from the original" if differs else "",
    )
