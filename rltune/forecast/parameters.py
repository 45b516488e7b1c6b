"""How many parameters a policy has, from the config.json of a local model folder."""

import json
import os
from collections.abc import Collection, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from rltune.errors import InputError
from rltune.forecast.model_shapes import Shape, published_shape, shape_of
from rltune.spec.trial_reference import is_reference, model_path

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
    if is_reference(model):
        return _exported(model)
    if Path(model).is_dir():
        return Path(model)
    snapshots = _hub_cache() / f"models--{model.replace('/', '--')}" / "snapshots"
    configs = sorted(snapshots.glob("*/config.json"), key=lambda path: path.stat().st_mtime)
    return configs[-1].parent if configs else None


def _exported(reference: str) -> Path | None:
    """Return the folder of a trial's model; None before it is exported, or where it is unknown."""
    try:
        folder = model_path(reference, Path.cwd())
    except InputError:
        return None
    return folder if folder.is_dir() else None


def _hub_cache() -> Path:
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")


def model_shape(model: str, env_kind: str) -> Mapping[str, Any] | None:
    """Return the config.json of a policy; where it is not on this machine, its published shape."""
    folder = model_folder(model, env_kind)
    return published_shape(model) if folder is None else read_shape(folder)


def read_shape(folder: Path) -> Mapping[str, Any] | None:
    """Return the config.json of a model folder; None when it cannot be read."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return config if isinstance(config, dict) else None


def parameter_count(config: Mapping[str, Any]) -> int | None:
    """Return the parameters of a dense decoder with gated MLPs and grouped-query attention.

    P = V D (1 or 2) + D + L (2 D Q + 2 D K + bias (Q + 2 K) + 3 D I + 2 D + norms)

    with V tokens, D hidden, L layers, Q = heads x head size, K = KV heads x head size, I the MLP's
    width; V D counts twice when input and output embeddings are not tied.

    Args:
        config: Content of a config.json.

    Returns:
        None when `model_type` is another kind of model, or a number is missing.

    """
    shape = _known_shape(config)
    if shape is None:
        return None
    kind, head = config["model_type"], shape.queries // config["num_attention_heads"]
    bias = shape.queries + 2 * shape.keys if _DENSE[kind] else 0
    norms = 2 * head if kind in _NORMED_HEADS else 0
    linear = sum(inputs * outputs for inputs, outputs in shape.linear_layers.values())
    embeddings = shape.vocabulary * shape.hidden * (1 if shape.is_tied else 2)
    layer = linear + bias + norms + 2 * shape.hidden
    return embeddings + shape.hidden + shape.layers * layer


def adapter_parameters(
    config: Mapping[str, Any], *, rank: int, targets: Collection[str]
) -> int | None:
    """Return the parameters of LoRA adapters in a model; None when it is not known here.

    A = L r sum over the target layers of (inputs + outputs)
    """
    shape = _known_shape(config)
    if shape is None or not set(targets) <= shape.linear_layers.keys():
        return None
    return shape.layers * rank * sum(sum(shape.linear_layers[name]) for name in set(targets))


def _known_shape(config: Mapping[str, Any]) -> Shape | None:
    if config.get("model_type") not in _DENSE:
        return None
    try:
        return shape_of(config)
    except (KeyError, TypeError, ValueError):
        return None
