"""LoRA: small trained matrices beside the frozen weights of linear layers.

peft puts its layers into the model in place, so the model keeps its class, and everything that
reads `base_model` or the head works as with full weights. What trains is what requires a gradient.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from rltune.errors import InputError, Problem
from rltune.maths.streams import stream_seed
from rltune.spec.schema import LoraConfig

_NAME = "default"
_PLAIN: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "use_dora": (False, None),
    "use_rslora": (False, None),
    "bias": ("none", None),
    "modules_to_save": (None, []),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "fan_in_fan_out": (False, None),
}
"""Keys of adapter_config.json that may only have these values: the plain adapter made here."""


def add_adapter(model: PreTrainedModel, lora: LoraConfig, *, seed: int) -> None:
    """Freeze a model and put an adapter into it, which alone is trained from now on.

    Args:
        model: Changed in place.
        lora: A rank of 0 leaves the model as it is.
        seed: The trial's: the A matrices are drawn from its stream `lora`. No global random state
            moves.

    Raises:
        InputError: The model has no such layers, the adapter to start from cannot be used, or peft
            is not installed.

    """
    if lora.rank == 0:
        return
    _require_targets(model, lora.targets)
    try:
        from peft import LoraConfig as PeftConfig
        from peft import inject_adapter_in_model
    except ImportError as error:
        raise InputError(
            Problem(
                "policy.lora.rank",
                "needs peft, which is not installed.",
                action="pip install 'rltune[lora]', or set it to 0.",
            )
        ) from error
    layers = [name for name, _ in _linear_layers(model) if _last(name) in lora.targets]
    config = PeftConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=layers,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(seed, "lora"))
        inject_adapter_in_model(config, model, adapter_name=_NAME)
    if lora.init != "default":
        _start_from(model, lora)
    model.eval()


def _linear_layers(model: PreTrainedModel) -> list[tuple[str, nn.Module]]:
    """Return the linear layers below the head: its weight is read as it is when tokens are scored.

    The backbone is looked through, under the names that the whole model has for its layers.
    """
    inner = {id(module) for module in model.base_model.modules()}
    head = model.get_output_embeddings()
    return [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and id(module) in inner and module is not head
    ]


def _last(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _require_targets(model: PreTrainedModel, targets: Sequence[str]) -> None:
    known = dict.fromkeys(_last(name) for name, _ in _linear_layers(model))
    unknown = [target for target in targets if target not in known]
    if unknown:
        raise InputError(
            Problem(
                "policy.lora.targets",
                f"{', '.join(unknown)}: {type(model).__name__} has no such linear layers.",
                f"Allowed: {', '.join(known)}.",
            )
        )


def _start_from(model: PreTrainedModel, lora: LoraConfig) -> None:
    """Copy the weights of a saved adapter, in peft's format, into the model's."""
    folder = Path(lora.init)
    weights = folder / "adapter_model.safetensors"
    try:
        if not weights.is_file() and (folder / "adapter_model.bin").exists():
            raise ValueError("adapter_model.bin is a pickle, which can run code when it is read")
        saved_config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        _require_plain(saved_config, lora)
        saved = {_own_name(name): tensor for name, tensor in load_file(weights).items()}
        _copy(saved, trained_parameters(model))
    except Exception as error:  # safetensors raises its own kinds for torn files
        raise InputError(
            Problem(
                "policy.lora.init",
                f"{lora.init!r} cannot be used: {error}.",
                "Allowed: default, or a folder with adapter_config.json and "
                "adapter_model.safetensors, as peft saves a plain LoRA adapter.",
                "Save the adapter again in this format, and set policy.lora to its values.",
            )
        ) from error


def _require_plain(saved: Mapping[str, Any], lora: LoraConfig) -> None:
    """Raise ValueError when an adapter computes something else than the config says."""
    for name, allowed in _PLAIN.items():
        if saved.get(name, allowed[0]) not in allowed:
            raise ValueError(f"its {name} is {saved[name]!r}, which is not supported")
    for name, key, wanted in (("r", "rank", lora.rank), ("lora_alpha", "alpha", lora.alpha)):
        if saved.get(name) != wanted:
            raise ValueError(f"its {name} is {saved.get(name)}, and policy.lora.{key} is {wanted}")


def _own_name(name: str) -> str:
    """Return our name of a tensor in a file of peft, which leaves the adapter's name out."""
    path, leaf = name.removeprefix("base_model.model.").rsplit(".", 1)
    return f"{path}.{_NAME}.{leaf}"


@torch.no_grad()
def _copy(saved: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in saved.items()}
    if shapes != {name: tuple(tensor.shape) for name, tensor in parameters.items()}:
        odd = sorted(shapes.keys() ^ parameters.keys()) or ["a shape"]
        raise ValueError(
            f"it has other layers than policy.lora.targets name in this model, such as {odd[0]}"
        )
    for name, parameter in parameters.items():
        parameter.copy_(saved[name])


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that training changes by name: all of them with full weights."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}
