"""The keys and values that a causal LM keeps of what it has read, by transformers' newest name."""

import inspect
from typing import TypeAlias

from transformers import Cache, DynamicCache, PreTrainedModel, Qwen2Model

KeysValues: TypeAlias = DynamicCache
"""Keys and values of rows that a policy has read."""

# Renamed in transformers after 5.19, which vLLM 0.32 still asks for.
_PARAMETERS = inspect.signature(Qwen2Model.forward).parameters
_NAME = "cache" if "cache" in _PARAMETERS else "past_key_values"


def no_keys(model: PreTrainedModel) -> KeysValues:
    """Return the keys and values of nothing, to be filled by a forward pass."""
    return DynamicCache(config=model.config)


def keeping(cache: Cache | None) -> dict[str, object]:
    """Return the arguments of a forward pass that reads `cache` and adds to it; None keeps none."""
    return {_NAME: cache, "use_cache": cache is not None}
