"""The shape of a dense decoder, and those of published models for a plan without a config.json.

Each of these is what the model's config.json on the hub says; a local one is always read instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a dense decoder decides its parameters and its memory."""

    layers: int  # their number
    hidden: int  # width D
    inner: int  # width I of the MLP
    queries: int  # width Q of all queries
    keys: int  # width K of all keys, and of all values
    vocabulary: int  # number of tokens
    is_tied: bool = False  # whether the vocabulary head is the embedding's matrix

    @property
    def linear_layers(self) -> Mapping[str, tuple[int, int]]:
        """Name of each linear layer of a block -> its inputs and outputs."""
        return {
            "q_proj": (self.hidden, self.queries),
            "k_proj": (self.hidden, self.keys),
            "v_proj": (self.hidden, self.keys),
            "o_proj": (self.queries, self.hidden),
            "gate_proj": (self.hidden, self.inner),
            "up_proj": (self.hidden, self.inner),
            "down_proj": (self.inner, self.hidden),
        }


def shape_of(config: Mapping[str, Any]) -> Shape:
    """Read a shape from the content of a config.json."""
    hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    head = int(config.get("head_dim") or hidden // heads)
    return Shape(
        layers=int(config["num_hidden_layers"]),
        hidden=hidden,
        inner=int(config["intermediate_size"]),
        queries=heads * head,
        keys=int(config.get("num_key_value_heads") or heads) * head,
        vocabulary=int(config["vocab_size"]),
        is_tied=bool(config.get("tie_word_embeddings")),
    )


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


_QWEN3_4B = {
    **_qwen25(2560, 9728, 36, 32, 8, vocab=151936, tied=True),
    "model_type": "qwen3",
    "head_dim": 128,
}
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "Qwen/Qwen2.5-0.5B": _qwen25(896, 4864, 24, 14, 2, vocab=151936, tied=True),
    "Qwen/Qwen2.5-1.5B": _qwen25(1536, 8960, 28, 12, 2, vocab=151936, tied=True),
    "Qwen/Qwen2.5-3B": _qwen25(2048, 11008, 36, 16, 2, vocab=151936, tied=True),
    "Qwen/Qwen3-4B": _QWEN3_4B,
    "Qwen/Qwen3-4B-Instruct-2507": _QWEN3_4B,
    "Qwen/Qwen2.5-7B": _qwen25(3584, 18944, 28, 28, 4, vocab=152064, tied=False),
}


def published_shape(model: str) -> Mapping[str, Any] | None:
    """Return the shape of a hub id, its Instruct variant included; None when it is not known."""
    return SHAPES.get(model.removesuffix("-Instruct"))
