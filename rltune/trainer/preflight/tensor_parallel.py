"""Whether a model's layers can be split over the processes of vLLM, by its config.json."""

from collections.abc import Iterator, Mapping
from typing import Any

from rltune.errors import Problem
from rltune.forecast.parameters import model_shape
from rltune.spec.load import LoadedSweep

KEY = "rollout.vllm.tensor_parallel"


def parallel_problems(loaded: LoadedSweep) -> Iterator[Problem]:
    """Yield what does not divide; nothing for a model that is not known on this machine.

    Heads and the width of the MLP are dealt evenly. Heads of keys and values may be fewer than the
    processes: each is then in several of them. (vLLM pads the vocabulary.)
    """
    for condition in loaded.conditions:
        rollout, model = condition.config["rollout"], condition.config["policy"]["model"]
        parts = rollout["vllm"]["tensor_parallel"]
        if rollout["engine"] != "vllm" or parts == 1:
            continue
        shape = model_shape(model, condition.config["env"]["kind"])
        if shape is None or not (undivided := undivided_by(parts, shape)):
            continue
        what = f"{parts} processes cannot share the {' and the '.join(undivided)} of {model!r}."
        fitting = [n for n in range(2, parts) if not undivided_by(n, shape)]
        choices = ", ".join(map(str, [1, *fitting]))
        yield Problem(loaded.where(KEY), what, f"Below {parts}: {choices}.", "Choose one of them.")


def undivided_by(parts: int, shape: Mapping[str, Any]) -> list[str]:
    """Return what of a model so many processes cannot share evenly; a number not named passes.

    Args:
        parts: Processes.
        shape: Content of a config.json.

    """
    heads = shape.get("num_attention_heads")
    found = []
    for name, text in (("num_attention_heads", "heads"), ("intermediate_size", "MLP columns")):
        size = shape.get(name)
        if isinstance(size, int) and size % parts:
            found.append(f"{size} {text}")
    kv_heads = shape.get("num_key_value_heads") or heads
    if isinstance(kv_heads, int) and kv_heads % parts and parts % kv_heads:
        found.append(f"{kv_heads} heads of keys and values")
    return found
