"""Short forms of sections, and their long forms: `env: frozen_lake`."""

from collections.abc import Callable, Mapping
from typing import Any

from rltune.spec.keys import nested
from rltune.spec.schema.advantage import long_advantage
from rltune.spec.schema.attribution import long_attribution
from rltune.spec.schema.env import long_env
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
    return {
        key: SHORT_FORMS[key](value) if key in SHORT_FORMS else value for key, value in data.items()
    }


def config_tree(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return config keys in full: short forms written out, dots nested.

    A short form and dotted keys of its section stand side by side, in any order:
    `advantage: grpo` with `advantage.shaping.gtpo_beta: 0.1`.

    Raises:
        ValueError: A key is given twice, in whatever form.

    """
    return nested(long_forms(given))
