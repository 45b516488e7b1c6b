"""A policy for another process: config, weights by checkpoint names, adapter files.

What serves it there is another program, or a copy of the policy in torch.
"""

import copy
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.initialization import no_init_weights

from rltune.maths.alignment import empty_at, place_of
from rltune.policy.adapter_folder import WEIGHTS
from rltune.policy.load import Policy, quiet
from rltune.policy.lora import add_adapter, trained_parameters
from rltune.policy.precision import round_frozen, set_compute_dtype
from rltune.spec.schema.trial import LoraConfig

_BASE, _ADAPTER = ".base_layer", ".default.weight"  # peft's names inside a layer


class ServedPolicy:
    """A policy for an engine with its own weights; reads the policy's current weights.

    Of weights in shards one at a time is put together, by all ranks: each reads the same.

    Args:
        policy: Trained in place elsewhere.
        lora: Its adapters; rank 0 is none.

    """

    def __init__(self, policy: Policy, lora: LoraConfig) -> None:
        self._model = policy.model
        self._lora = lora
        self.end_ids = policy.end_ids
        self.adapter_rank = lora.rank

    def write_config(self, folder: Path, *, max_context: int) -> None:
        """Write config.json for `weights`.

        The head is written untied: an update in place must not depend on how an engine ties it to
        the embeddings. Plain rotary positions are extended to `max_context`.
        """
        config = copy.deepcopy(self._model.config)
        config.tie_word_embeddings = False
        config.architectures = [type(self._model).__name__]
        rope = getattr(config, "rope_parameters", None) or {}
        if rope.get("rope_type", "default") == "default":
            config.max_position_embeddings = max(config.max_position_embeddings, max_context)
        config.save_pretrained(folder)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield all weights but the adapters', each under its name in a checkpoint."""
        head = self._model.get_output_embeddings()
        head_name = next(name for name, module in self._model.named_modules() if module is head)
        yield f"{head_name}.weight", whole(head.weight)
        for name, parameter in self._model.named_parameters():
            if not (name.endswith(_ADAPTER) or parameter is head.weight):
                yield name.replace(_BASE, ""), whole(parameter)
        if head.weight is self._model.get_input_embeddings().weight:
            yield self._embedding_name(), whole(head.weight)

    def trained(self) -> Iterator[tuple[str, Tensor]]:
        """Return what an engine takes over at a sync: the adapter, or else all weights."""
        return self._adapter() if self.adapter_rank else self.weights()

    def _adapter(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the adapter's weights, each under its name in a file of peft."""
        for name, parameter in trained_parameters(self._model).items():
            yield peft_name(name), whole(parameter)

    def write_adapter(self, folder: Path) -> None:
        """Write the adapter in peft's format; the folder must exist."""
        layers = sorted({_layer(name) for name in trained_parameters(self._model)})
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "r": self._lora.rank,
            "lora_alpha": self._lora.alpha,
            "lora_dropout": self._lora.dropout,
            "bias": "none",
            "target_modules": layers,
        }
        (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
        save_file(
            {name: tensor.cpu().contiguous() for name, tensor in self._adapter()},
            folder / WEIGHTS,
        )

    def _embedding_name(self) -> str:
        table: nn.Module = self._model.get_input_embeddings()
        return next(f"{n}.weight" for n, module in self._model.named_modules() if module is table)


def whole(parameter: nn.Parameter) -> Tensor:
    """Return the values of a parameter; of one in shards, put together with the other ranks."""
    values = parameter.detach()
    gather: Callable[[], Tensor] | None = getattr(values, "full_tensor", None)
    return values if gather is None else gather()


def _layer(name: str) -> str:
    """Return the last name of the linear layer that an adapter's matrix belongs to."""
    return name.split(".lora_")[0].rsplit(".", 1)[-1]


def peft_name(name: str) -> str:
    """Return the name in a file of peft of an adapter's parameter."""
    return f"base_model.model.{name.removesuffix(_ADAPTER)}.weight"


class Served(Protocol):
    """A policy as the copy's process sees it; `ServedPolicy` is one."""

    def write_config(self, folder: Path, *, max_context: int) -> None:
        """Write config.json of the model that `weights` fills."""

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights that no adapter holds, by their checkpoint names, in float32."""

    def write_adapter(self, folder: Path) -> None:
        """Write the adapter in peft's format."""


class PolicyCopy:
    """A causal LM with a policy's weights, which follow it at every `update`.

    The same layers compute in the same formats as the policy's, with weights that lie as the
    policy's do, so the logits are equal bit by bit on one kind of machine. Linear layers are stored
    as they are computed with: nothing trains here.

    Args:
        source: The policy.
        lora: Its adapters; rank 0 is none.
        dtype: Number format of its computation.
        device: Where the copy goes.

    """

    def __init__(self, source: Served, *, lora: LoraConfig, dtype: str, device: str) -> None:
        quiet()
        self._source = source
        self.model = _network(source)
        self._base = dict(self.model.named_parameters())
        _fill(self._base, source, is_placed=True)
        bare = lora.model_copy(update={"init": "default"})  # its weights come with `update`
        add_adapter(self.model, bare, seed=0)
        self._adapter = trained_parameters(self.model) if lora.rank else {}
        set_compute_dtype(self.model, dtype)
        self.model.requires_grad_(False)
        round_frozen(self.model)
        self.model.to(device).eval()
        self.update()

    @torch.no_grad()
    def update(self) -> None:
        """Take over what is trained: the adapter, or all weights."""
        if not self._adapter:
            _fill(self._base, self._source)
            return
        with tempfile.TemporaryDirectory() as folder:
            self._source.write_adapter(Path(folder))
            self.use(read_adapter(Path(folder)))

    @torch.no_grad()
    def use(self, saved: Mapping[str, Tensor]) -> None:
        """Compute with an adapter from now on: what `read_adapter` returns."""
        for name, parameter in self._adapter.items():
            parameter.copy_(saved[peft_name(name)])


def read_adapter(folder: Path) -> dict[str, Tensor]:
    """Return the matrices of an adapter in peft's format, by their names there."""
    matrices: dict[str, Tensor] = load_file(folder / WEIGHTS)
    return matrices


def _network(source: Served) -> PreTrainedModel:
    """Return the policy's kind of network, without weights."""
    with tempfile.TemporaryDirectory() as folder:
        source.write_config(Path(folder), max_context=0)
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    with no_init_weights():
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


@torch.no_grad()
def _fill(
    parameters: dict[str, torch.nn.Parameter], source: Served, *, is_placed: bool = False
) -> None:
    """Copy all weights, in place: a CUDA graph reads them where they are.

    Args:
        parameters: To be filled, by name.
        source: The policy.
        is_placed: Move each first to memory that begins as the policy's does.

    """
    missing = set(parameters)
    for name, tensor in source.weights():
        parameter = parameters[name]
        if is_placed:
            parameter.data = empty_at(place_of(tensor), parameter.shape, parameter.dtype)
        parameter.copy_(tensor)
        missing.discard(name)
    if missing:
        raise ValueError(f"the policy has no weights for {', '.join(sorted(missing)[:3])}")
