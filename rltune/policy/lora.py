"""LoRA: small trained matrices beside the frozen weights of linear layers.

peft inserts its layers in place, so the model keeps its class, and code that reads `base_model` or
the head works as with full weights. Exactly the parameters with `requires_grad` are trained.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from rltune.errors import InputError, Problem
from rltune.maths.streams import stream_seed
from rltune.policy.adapter_folder import WEIGHTS, adapter_problem, require_adapter
from rltune.policy.model_folder import FolderFault, require_finite
from rltune.spec.schema.trial import LoraConfig

_NAME = "default"


def add_adapter(model: PreTrainedModel, lora: LoraConfig, *, seed: int) -> None:
    """Freeze a model and insert an adapter, which alone is trained from now on.

    Args:
        model: Changed in place.
        lora: A rank of 0 leaves the model as it is.
        seed: The trial's: the A matrices are drawn from its stream `lora`. No global random state
            moves.

    Raises:
        InputError: The model has no such layers, or the adapter to start from cannot be used.

    """
    if lora.rank == 0:
        return
    _require_targets(model, lora.targets)
    from peft import LoraConfig as PeftConfig
    from peft import inject_adapter_in_model

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
    """Return the linear layers without the head, whose weight scoring reads directly.

    These are layers of the backbone, under their names in the whole model.
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
    try:
        require_adapter(folder, lora, model=model.name_or_path)
        saved = {_own_name(name): t for name, t in load_file(folder / WEIGHTS).items()}
        _require_same_layers(saved, model)
        for name, tensor in saved.items():
            require_finite(name, tensor)
        _copy(saved, trained_parameters(model))
    except FolderFault as fault:
        raise InputError(adapter_problem(lora.init, fault)) from fault


def _require_same_layers(saved: Mapping[str, Tensor], model: PreTrainedModel) -> None:
    """Refuse an adapter of other layers, or of other shapes, than the model has."""
    wanted, kind = trained_parameters(model), type(model).__name__
    known = {name for name, _ in model.named_modules()}
    if extra := sorted(saved.keys() - wanted.keys()):
        layer = extra[0].partition(".lora_")[0]
        what = f"it adapts {layer}, which "
        what += "policy.lora.targets does not name" if layer in known else f"{kind} does not have"
        raise FolderFault(what, "Set policy.model and policy.lora.targets to what it was made for.")
    if missing := sorted(wanted.keys() - saved.keys()):
        layer = missing[0].partition(".lora_")[0]
        what = f"it has no matrices for {layer}, which policy.lora.targets names"
        raise FolderFault(what, "Set policy.lora.targets to the layers that it adapts.")
    for name, parameter in wanted.items():
        if (shape := tuple(saved[name].shape)) != tuple(parameter.shape):
            what = f"{name} has the shape {shape}, and {kind} needs {tuple(parameter.shape)}"
            raise FolderFault(what, "Give the base model that it was made for.")


def _own_name(name: str) -> str:
    """Return our name of a tensor in a file of peft, which leaves the adapter's name out."""
    path, leaf = name.removeprefix("base_model.model.").rsplit(".", 1)
    return f"{path}.{_NAME}.{leaf}"


@torch.no_grad()
def _copy(saved: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> None:
    for name, parameter in parameters.items():
        parameter.copy_(saved[name])


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that training changes by name: all of them with full weights."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


@torch.no_grad()
def merge_adapter(model: PreTrainedModel) -> None:
    """Add the adapter to the weights that it adapts, and take its layers out. In place.

    Raises:
        ValueError: A merged weight would not be finite.

    """
    from peft.tuners.lora import LoraLayer

    for name, layer in [*model.named_modules()]:
        if isinstance(layer, LoraLayer):
            layer.merge(safe_merge=True)
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, layer.get_base_layer())
    model.requires_grad_(True)
