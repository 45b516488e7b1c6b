"""What a trial recorded of its origin, as far as it can be read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rltune.errors import InputError
from rltune.store.files import read_json
from rltune.store.inputs import base_of
from rltune.store.rundir import TrialDir


def read_provenance(trial: TrialDir) -> Mapping[str, Any]:
    """Return provenance.json; empty when the trial has none that can be read."""
    try:
        content = read_json(trial.provenance)
    except InputError:
        return {}
    return content if isinstance(content, dict) else {}


def base_of_trial(trial: TrialDir) -> Path:
    """Return the folder that a trial's relative paths refer to; this one without a record."""
    return base_of(read_provenance(trial), otherwise=Path.cwd())
