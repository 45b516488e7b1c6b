"""Refuse to go on with trials whose files have other contents than when they ran."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rltune.errors import Problem, StoreError
from rltune.runner.trial import steps_done
from rltune.store.inputs import GONE, base_of, changed_since, file_digest, recorded_inputs
from rltune.store.provenance import read_provenance
from rltune.store.rundir import RunDir, TrialDir


def require_same_inputs(run: RunDir, base: Path) -> None:
    """Refuse to launch, or to hand back, the trials of a run folder that read other files.

    A trial that has measured nothing is left out: what made it fail may have been repaired.

    Args:
        run: The run folder.
        base: Folder to which relative paths refer.

    Raises:
        StoreError: Names each file that is not as a trial recorded it, with the trials.

    """
    readers: dict[str, list[TrialDir]] = {}
    for trial in run.trial_dirs():
        if steps_done(trial) is None:
            continue
        for name in changed_since(recorded_inputs(read_provenance(trial)), base):
            readers.setdefault(name, []).append(trial)
    if readers:
        raise StoreError([_changed(name, base, trials) for name, trials in readers.items()])


def _changed(name: str, base: Path, trials: Sequence[TrialDir]) -> Problem:
    shown = ", ".join(trial.trial_id for trial in trials[:3])
    more = f" and {len(trials) - 3} more" if len(trials) > 3 else ""
    action = (
        "Restore it. To keep both versions, use another --runs-dir, or another file name in the "
        f"config; or delete the folders of these trials in {trials[0].path.parent} to run them "
        "again."
    )
    what = f"{_change(base / name)} since these trials read it: {shown}{more}."
    return Problem(name, what, action=_elsewhere(read_provenance(trials[0]), base) or action)


def require_inputs_of(trial: TrialDir, provenance: Mapping[str, Any], base: Path) -> None:
    """Refuse to go on from a trial, or to test it, when its files have other contents.

    Args:
        trial: The trial.
        provenance: Content of its provenance.json.
        base: Folder to which relative paths refer.

    Raises:
        StoreError: Names each file that is not as the trial recorded it.

    """
    names = changed_since(recorded_inputs(provenance), base)
    action = (
        "Restore it. To use other contents, give the file another name and set its key "
        "in a new sweep, or with --set for a new trial."
    )
    problems = [
        Problem(
            name,
            f"{_change(base / name)} since {trial.trial_id} read it.",
            action=_elsewhere(provenance, base) or action,
        )
        for name in names
    ]
    if problems:
        raise StoreError(problems)


def _change(path: Path) -> str:
    return "is gone" if file_digest(path) == GONE else "has changed"


def _elsewhere(provenance: Mapping[str, Any], base: Path) -> str:
    """Return what to do when the trial was run from another folder that still exists."""
    before = base_of(provenance, otherwise=base)
    if os.path.realpath(before) == os.path.realpath(base):
        return ""
    return f"Relative paths refer to {before}, where the trial ran: run the command there."
