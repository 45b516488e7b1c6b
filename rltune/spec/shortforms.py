"""Short forms of sections, and their long forms: `env: frozen_lake`."""

from collections.abc import Callable, Mapping
from typing import Any

from rltune.spec.keys import nested
from rltune.spec.schema.advantage import long_advantage
from rltune.spec.schema.attribution import long_attribution
from rltune.spec.schema.env import long_env, long_eval_set
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
    return _long_sets(
        {key: SHORT_FORMS[key](item) if key in SHORT_FORMS else item for key, item in data.items()}
    )


def _long_sets(data: dict[str, Any]) -> dict[str, Any]:
    """Return nested config keys with the short forms of named evaluation sets written out."""
    env = data.get("env")
    sets = env.get("eval") if isinstance(env, Mapping) else None
    if env is None or not isinstance(sets, Mapping):
        return data
    return {**data, "env": {**env, "eval": {k: long_eval_set(one) for k, one in sets.items()}}}


def config_tree(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return config keys in full: short forms written out, dots nested.

    A short form and dotted keys of its section stand side by side, in any order:
    `advantage: grpo` with `advantage.shaping.gtpo_beta: 0.1`.

    Raises:
        ValueError: A key is given twice, in whatever form.

    """
    return _long_sets(nested(long_forms(given)))
