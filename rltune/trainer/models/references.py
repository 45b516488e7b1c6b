"""Make the folders that references to trials stand for, before anything reads them."""

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rltune.errors import InputError, Problem
from rltune.interpreter import ending_with, module_command, module_environment
from rltune.lineage.share import row_of_trial
from rltune.spec.trial_reference import Checkpoint, checkpoint_of, is_reference, require_reference
from rltune.store.lock import file_lock
from rltune.store.rundir import RunDir, TrialDir

_PATIENCE_S = 3600.0  # another sweep may be exporting the same model
_WHOLE = "SHA256SUMS"  # the last file of an export


def make_references(configs: Iterable[Mapping[str, Any]], base: Path) -> None:
    """Export every checkpoint that configs refer to and that is not exported yet.

    Each is exported by a process of its own, so the driver stays without torch.

    Args:
        configs: Resolved configs.
        base: Folder to which relative paths refer.

    Raises:
        InputError: A reference means no checkpoint, or it cannot be exported.

    """
    named: dict[tuple[str, bool], None] = {}
    for config in configs:
        named[config["policy"]["model"], False] = None
        if config["policy"]["lora"]["rank"]:
            named[config["policy"]["lora"]["init"], True] = None
    for name, adapter in named:
        if is_reference(name):
            made_model(name, base, adapter=adapter)


def made_model(name: str, base: Path, *, adapter: bool = False, where: str = "") -> Path:
    """Return the folder of a reference, exported now unless it was before.

    Args:
        name: The reference.
        base: Folder to which relative paths refer.
        adapter: Whether only its adapter is meant.
        where: What messages call it; its key where empty.

    Raises:
        InputError: It means no checkpoint, its trial has no adapter where one is meant, or it
            cannot be exported.

    """
    where = where or ("policy.lora.init" if adapter else "policy.model")
    found = require_reference(name, base, adapter=adapter, where=where)
    folder = found.folder(adapter=adapter)
    if (folder / _WHOLE).is_file():  # nothing is written: the run may be a read-only archive
        return folder
    try:
        folder.parent.mkdir(exist_ok=True)
        with file_lock(folder.parent / ".lock", timeout_s=_PATIENCE_S) as lock:
            if not (folder / _WHOLE).is_file():
                _export(found, folder, lock, adapter=adapter, name=name, where=where)
    except OSError as error:
        what = f"{name!r} cannot be exported to {folder} ({error.strerror})."
        key = "policy.lora.init" if adapter else "policy.model"
        action = f"Write it elsewhere with rltune model --out DIR, and set {key} to DIR."
        raise InputError(Problem(where, what, action=action)) from error
    return folder


def _export(
    found: Checkpoint, folder: Path, lock: int, *, adapter: bool, name: str, where: str
) -> None:
    """Export in a child that is killed with this process, and that holds the lock until it ends."""
    merge = ["--merge"] if found.has_adapter and not adapter else []
    options = ["--out", str(folder), "--checkpoint", str(found.step), *merge]
    done = subprocess.run(
        module_command("rltune", "model", str(found.trial), *options),
        env=module_environment(),
        pass_fds=(lock,),
        preexec_fn=ending_with(os.getpid()),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        why = done.stderr.strip().removeprefix("error: ") or f"exit code {done.returncode}"
        raise InputError(Problem(where, f"{name!r} cannot be exported: {why}"))


def grown_from(config: Mapping[str, Any], base: Path) -> str:
    """Return the row of the trial that a config's model refers to, as `RUN/EXP_ID`.

    Empty where it refers to none, or where that is not there any more.
    """
    policy = config["policy"]
    names = [(policy["model"], "policy.model")]
    if policy["lora"]["rank"]:
        names.insert(0, (policy["lora"]["init"], "policy.lora.init"))
    for name, where in names:
        if is_reference(name):
            try:
                found = checkpoint_of(name, base, where)
            except InputError:
                return ""
            return row_of_trial(RunDir(found.run).results, TrialDir(found.trial).trial_id)
    return ""
