"""A policy for another program: config, weights by checkpoint names, adapter files."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor, nn

from rltune.policy.load import Policy
from rltune.policy.lora import trained_parameters
from rltune.spec.schema.trial import LoraConfig

_BASE, _ADAPTER = ".base_layer", ".default.weight"  # peft's names inside a layer


class ServedPolicy:
    """A policy for an engine with its own weights; reads the policy's current weights.

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
        yield f"{head_name}.weight", head.weight.detach()
        for name, parameter in self._model.named_parameters():
            if not (name.endswith(_ADAPTER) or parameter is head.weight):
                yield name.replace(_BASE, ""), parameter.detach()
        if head.weight is self._model.get_input_embeddings().weight:
            yield self._embedding_name(), head.weight.detach()

    def write_adapter(self, folder: Path) -> None:
        """Write the adapter in peft's format; the folder must exist."""
        adapter = trained_parameters(self._model)
        layers = sorted({_layer(name) for name in adapter})
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
            {peft_name(name): p.detach().cpu().contiguous() for name, p in adapter.items()},
            folder / "adapter_model.safetensors",
        )

    def _embedding_name(self) -> str:
        table: nn.Module = self._model.get_input_embeddings()
        return next(f"{n}.weight" for n, module in self._model.named_modules() if module is table)


def _layer(name: str) -> str:
    """Return the last name of the linear layer that an adapter's matrix belongs to."""
    return name.split(".lora_")[0].rsplit(".", 1)[-1]


def peft_name(name: str) -> str:
    """Return the name in a file of peft of an adapter's parameter."""
    return f"base_model.model.{name.removesuffix(_ADAPTER)}.weight"
