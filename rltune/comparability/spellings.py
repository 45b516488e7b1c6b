"""Keys that come to one thing where they are written otherwise (S6): sets, defaults, the unread."""

from collections.abc import Mapping
from typing import Any

SETS = ("policy.lora.targets", "env.hops", "env.kinds")
"""Lists whose order is no matter."""

_FOUND = ("env.k", "env.max_information_words", "env.retriever", "env.corpus")


def spellings(flat: Mapping[str, Any]) -> dict[str, str]:
    """Return dotted key -> what it comes to in a flat config, as `inert.settings`."""
    found = {
        key: f"the order of {sorted(flat[key])} is no matter" for key in SETS if key in flat
    } | dict.fromkeys(("collapse.every", "collapse.prompts"), "it measures, no more")
    if "env.max_difficulty" in flat:
        hardest = flat["env.max_difficulty"] or flat["env.max_actions"]
        found["env.max_difficulty"] = f"the hardest task takes {hardest} actions"
    if flat.get("env.observation") == "coord":
        found["env.symbols"] = "env.observation coord draws no grid"
    if flat.get("env.max_searches") == 0:
        found |= dict.fromkeys(_FOUND, "env.max_searches is 0")
    return found
