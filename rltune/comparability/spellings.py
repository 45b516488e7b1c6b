"""Keys whose different values mean the same (S6): sets, defaults, keys that nothing reads."""

from collections.abc import Iterable
from typing import Any

from rltune.spec.schema.env import FrozenLakeConfig, SokobanConfig
from rltune.spec.schema.trial import TrialConfig

_FOUND = ("env.k", "env.max_information_words", "env.retriever", "env.corpus")
_MEASURES = ("collapse.every", "collapse.prompts", "gate.start_kl")


def spellings(config: TrialConfig) -> dict[str, str]:
    """Return dotted key -> what it comes to, as `inactive_keys.settings`."""
    env = config.env
    known = {
        "policy.lora.targets": _unordered(config.policy.lora.targets),
        **dict.fromkeys(_MEASURES, "it only measures"),
    }
    if env.kind == "multihop_qa":
        known |= {"env.hops": _unordered(env.hops), "env.kinds": _unordered(env.kinds)}
        if env.max_searches == 0:
            known |= dict.fromkeys(_FOUND, "env.max_searches is 0")
    elif env.kind == "arithmetic":
        known["env.terms"] = _unordered(env.terms)
    elif isinstance(env, SokobanConfig | FrozenLakeConfig) and env.observation == "coord":
        known["env.symbols"] = "env.observation coord draws no grid"
    if env.kind == "sokoban":
        hardest = env.max_difficulty or env.max_actions
        known["env.max_difficulty"] = f"the hardest task takes {hardest} actions"
    return known


def _unordered(values: Iterable[Any]) -> str:
    return f"the order of {sorted(values)} is no matter"
