"""Where a rerun or a child comes from: `origin.json` in its folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rltune.errors import InputError, Problem, StoreError
from rltune.spec.identity import is_of_version_1
from rltune.store.files import read_json, to_json, write_json_atomic
from rltune.store.rundir import TrialDir
from rltune.types import TrialSpec

_FORMAT = "rltune-origin-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a trial outside its sweep was made from."""

    kind: Literal["rerun", "child"]  # `rerun` repeats its parent; `child` is a new trial
    parent: str  # trial id of the parent
    folder: str  # the parent's folder, relative to the run folder
    step: int | None = None  # of the checkpoint that it starts from; None: as the config says
    which: str = ""  # how that checkpoint was named: `best`, `latest`, or a step; empty without one
    weights_sha256: str = ""  # digest of the weights of `start/`; empty without them
    changes: Mapping[str, list[Any]] = field(default_factory=dict)  # key -> old value, new one
    software: tuple[str, ...] = ()  # differences from the parent's software, one line each


def write_origin(trial: TrialDir, origin: Origin) -> None:
    """Write where a trial comes from."""
    write_json_atomic(trial.origin, {"format": _FORMAT, **to_json(origin)})


def read_origin(trial: TrialDir) -> Origin | None:
    """Return where a trial comes from; None for a trial of a sweep.

    Raises:
        StoreError: The file is not such a record, so the start of the trial is unknown.

    """
    if not trial.origin.exists():
        return None
    try:
        content = read_json(trial.origin)
        if content.pop("format") != _FORMAT:
            raise ValueError("another format")
        return Origin(**content | {"software": tuple(content["software"])})
    except (InputError, AttributeError, KeyError, TypeError, ValueError) as error:
        what = f"does not say where this trial comes from ({error})."
        action = "Restore the file, or move the trial's folder away to make it again."
        raise StoreError(Problem(str(trial.origin), what, action=action)) from error


def require_current_config(trial: TrialDir, spec: TrialSpec, origin: Origin | None) -> None:
    """Refuse to go on with a trial whose config has keys that this version does not know.

    Raises:
        StoreError: It ran before loss, filter and correction had variants.

    """
    if is_of_version_1(
        spec.config, spec.config_hash, start=origin.weights_sha256 if origin else ""
    ):
        what = "an older version of rltune ran this trial, with other config keys; it can be read, "
        what += "but not run, continued or tested by this one."
        action = "Start a new run: rltune sweep FILE."
        raise StoreError(Problem(str(trial.path), what, action=action))
