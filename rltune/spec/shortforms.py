"""Sections that may be written in a word, and their long forms: `env: frozen_lake`."""

from collections.abc import Callable, Mapping
from typing import Any

from rltune.spec.schema_advantage import long_advantage
from rltune.spec.schema_attribution import long_attribution
from rltune.spec.schema_env import long_env
from rltune.spec.schema_reward import long_reward

SHORT_FORMS: Mapping[str, Callable[[Any], Any]] = {
    "env": long_env,
    "reward": long_reward,
    "advantage": long_advantage,
    "attribution": long_attribution,
}
"""Section -> what writes its short forms out, and leaves anything else as it is."""


def long_forms(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested config keys with every short form written out."""
    return {
        key: SHORT_FORMS[key](value) if key in SHORT_FORMS else value for key, value in data.items()
    }
