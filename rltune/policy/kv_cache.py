"""The key-value cache of a causal LM, by the name that the installed transformers uses."""

import inspect
from typing import TypeAlias

from transformers import Cache, DynamicCache, PreTrainedModel, Qwen2Model

KVCache: TypeAlias = DynamicCache
"""Keys and values of the tokens that a policy has read."""

# Renamed in transformers after 5.19, which vLLM 0.32 still asks for.
_PARAMETERS = inspect.signature(Qwen2Model.forward).parameters
_NAME = "cache" if "cache" in _PARAMETERS else "past_key_values"


def new_kv_cache(model: PreTrainedModel) -> KVCache:
    """Return an empty cache, to be filled by a forward pass."""
    return DynamicCache(config=model.config)


def keeping(cache: Cache | None) -> dict[str, object]:
    """Return the arguments of a forward pass that reads `cache` and adds to it; None keeps none."""
    return {_NAME: cache, "use_cache": cache is not None}
