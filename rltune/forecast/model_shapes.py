"""Shapes of published models, so that a plan can be made where their config.json is not.

Each is what the model's own config.json on the hub says; a local one is always read instead.
"""

from collections.abc import Mapping
from typing import Any


def _qwen25(
    hidden: int, inner: int, layers: int, heads: int, kv_heads: int, *, vocab: int, tied: bool
) -> dict[str, Any]:
    return {
        "model_type": "qwen2",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        "tie_word_embeddings": tied,
    }


SHAPES: Mapping[str, Mapping[str, Any]] = {
    "Qwen/Qwen2.5-0.5B": _qwen25(896, 4864, 24, 14, 2, vocab=151936, tied=True),
    "Qwen/Qwen2.5-1.5B": _qwen25(1536, 8960, 28, 12, 2, vocab=151936, tied=True),
    "Qwen/Qwen2.5-3B": _qwen25(2048, 11008, 36, 16, 2, vocab=151936, tied=True),
    "Qwen/Qwen2.5-7B": _qwen25(3584, 18944, 28, 28, 4, vocab=152064, tied=False),
}


def published_shape(model: str) -> Mapping[str, Any] | None:
    """Return the shape of a hub id, its Instruct variant included; None when it is not known."""
    return SHAPES.get(model.removesuffix("-Instruct"))
