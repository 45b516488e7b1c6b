"""How many parameters a policy has, from the config.json of a local model folder."""

import json
import os
from collections.abc import Collection, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from rltune.forecast.model_shapes import published_shape

_DENSE = {  # model_type -> whether the query, key and value projections have biases
    "llama": False,
    "mistral": False,
    "qwen2": True,
    "qwen3": False,
}
_NORMED_HEADS = frozenset({"qwen3"})  # with a norm on each head's queries and keys


def model_folder(model: str, env_kind: str) -> Path | None:
    """Return the local folder of a policy: shipped, given, or in the Hugging Face cache."""
    if model == "tiny":
        shipped = Path(str(files("rltune"))) / "policy" / "weights" / env_kind
        return shipped if shipped.is_dir() else None
    if Path(model).is_dir():
        return Path(model)
    snapshots = _hub_cache() / f"models--{model.replace('/', '--')}" / "snapshots"
    found = sorted(snapshots.glob("*/config.json"), key=lambda path: path.stat().st_mtime)
    return found[-1].parent if found else None


def _hub_cache() -> Path:
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")


def model_shape(model: str, env_kind: str) -> Mapping[str, Any] | None:
    """Return the config.json of a policy; where it is not on this machine, its published shape."""
    folder = model_folder(model, env_kind)
    if folder is None:
        return published_shape(model)
    return read_shape(folder)


def read_shape(folder: Path) -> Mapping[str, Any] | None:
    """Return the config.json of a model folder; None when it cannot be read."""
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def parameter_count(config: Mapping[str, Any]) -> int | None:
    """Return the number of parameters of a config.json; None when its kind is not known here."""
    try:
        return dense_decoder_parameters(config)
    except (KeyError, TypeError):
        return None


def adapter_parameters(
    config: Mapping[str, Any], *, rank: int, targets: Collection[str]
) -> int | None:
    """Return the parameters of LoRA adapters in a model; None when it is not known here.

    A = L r sum over the target layers of (inputs + outputs)
    """
    try:
        if config.get("model_type") not in _DENSE:
            return None
        hidden, inner, heads = (
            config["hidden_size"], config["intermediate_size"], config["num_attention_heads"],
        )  # fmt: skip
        head = config.get("head_dim") or hidden // heads
        queries, keys = heads * head, (config.get("num_key_value_heads") or heads) * head
        sides = {
            **{"q_proj": hidden + queries, "k_proj": hidden + keys, "v_proj": hidden + keys},
            **{"o_proj": queries + hidden, "gate_proj": hidden + inner, "up_proj": hidden + inner},
            "down_proj": inner + hidden,
        }
        return int(config["num_hidden_layers"] * rank * sum(sides[name] for name in set(targets)))
    except (KeyError, TypeError):
        return None


def dense_decoder_parameters(config: Mapping[str, Any]) -> int | None:
    """Return the parameters of a dense decoder with gated MLPs and grouped-query attention.

    P = V D (1 or 2) + D + L (2 D Q + 2 D K + bias (Q + 2 K) + 3 D I + 2 D + norms)

    with V tokens, D hidden, L layers, Q = heads x head size, K = KV heads x head size, I the MLP's
    width; V D counts twice when input and output embeddings are not tied.

    Args:
        config: Content of a config.json.

    Returns:
        None when `model_type` is another kind of model.

    """
    kind = config.get("model_type")
    if kind not in _DENSE:
        return None
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head = config.get("head_dim") or hidden // heads
    queries, keys = heads * head, (config.get("num_key_value_heads") or heads) * head
    bias = queries + 2 * keys if _DENSE[kind] else 0
    norms = 2 * head if kind in _NORMED_HEADS else 0
    attention = 2 * hidden * queries + 2 * hidden * keys + bias + norms
    layer = attention + 3 * hidden * config["intermediate_size"] + 2 * hidden
    embeddings = config["vocab_size"] * hidden * (1 if config.get("tie_word_embeddings") else 2)
    return int(embeddings + hidden + config["num_hidden_layers"] * layer)
