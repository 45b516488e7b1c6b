"""Short forms of sections, and their long forms: `env: frozen_lake`."""

from collections.abc import Callable, Mapping
from typing import Any

from rltune.spec.keys import nested
from rltune.spec.schema.advantage import long_advantage
from rltune.spec.schema.attribution import long_attribution
from rltune.spec.schema.env import long_env, long_eval_set
from rltune.spec.schema.env_verifier import long_verifier
from rltune.spec.schema.reward import long_reward

SHORT_FORMS: Mapping[str, Callable[[Any], Any]] = {
    "env": long_env,
    "reward": long_reward,
    "advantage": long_advantage,
    "attribution": long_attribution,
}
"""Section -> what writes its short forms out, and leaves anything else as it is."""


def long_forms(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested config keys with every short form written out."""
    return _long_in_env(
        {key: SHORT_FORMS[key](item) if key in SHORT_FORMS else item for key, item in data.items()}
    )


def _long_in_env(data: dict[str, Any]) -> dict[str, Any]:
    """Return nested config keys with the short forms inside of `env` written out."""
    env = data.get("env")
    if not isinstance(env, Mapping):
        return data
    full = {key: _IN_ENV[key](item) if key in _IN_ENV else item for key, item in env.items()}
    return {**data, "env": full}


def _long_sets(sets: object) -> object:
    """Return named evaluation sets, each in full; anything else unchanged."""
    if not isinstance(sets, Mapping):
        return sets
    return {name: long_eval_set(one) for name, one in sets.items()}


_IN_ENV: Mapping[str, Callable[[Any], Any]] = {"eval": _long_sets, "verifier": long_verifier}


def config_tree(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return config keys in full: short forms written out, dots nested.

    A short form and dotted keys of its section stand side by side, in any order:
    `advantage: grpo` with `advantage.shaping.gtpo_beta: 0.1`.

    Raises:
        ValueError: A key is given twice, in whatever form.

    """
    return _long_in_env(nested(long_forms(given)))
