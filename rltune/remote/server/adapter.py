"""An adapter in training over a base that many adapters share."""

import copy
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from rltune.losses.entropy import chunked_logprobs_entropy
from rltune.policy.load import CausalLM
from rltune.policy.logprobs import action_hidden, head_chunk, head_weight
from rltune.policy.lora import add_adapter, trained_parameters
from rltune.remote.server.losses import LOSSES, NEEDED
from rltune.remote.server.wire import Datum, Pass, RefusedError
from rltune.spec.backend_checks import ALPHA
from rltune.spec.schema.trial import LoraConfig

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")

_ROWS = 16  # rows of one forward pass


def sharing_copy(network: CausalLM) -> CausalLM:
    """Return a copy with own trained parameters; frozen ones and buffers are the same tensors."""
    shared = (t for t in chain(network.parameters(), network.buffers()) if not t.requires_grad)
    return copy.deepcopy(network, {id(tensor): tensor for tensor in shared})


class Adapter:
    """A LoRA adapter with its gradient and its AdamW.

    Args:
        base: Frozen network; it is shared, not copied.
        name: Name of the base.
        rank: Columns of the matrices.
        seed: Of the first A matrices.
        targets: Last names of the layers that get matrices.

    """

    def __init__(
        self, base: CausalLM, name: str, *, rank: int, seed: int, targets: Sequence[str]
    ) -> None:
        self.base_name, self.rank, self.targets = name, rank, tuple(targets)
        self.network = sharing_copy(base)
        lora = LoraConfig(rank=rank, alpha=ALPHA, targets=self.targets)
        add_adapter(self.network, lora, seed=seed)
        self._trained = trained_parameters(self.network)
        self._optimizer = torch.optim.AdamW(self._trained.values())

    def frozen_copy(self) -> CausalLM:
        """Return a network with the weights of now, for sampling."""
        return sharing_copy(self.network)

    def run(self, asked: Pass) -> tuple[list[Tensor], float]:
        """Return the logprobs of each datum's targets and the loss; add its gradient.

        Raises:
            RefusedError: There is no such loss, or a datum lacks its inputs.

        """
        _require_inputs(asked)
        require_tokens([one.ids for one in asked.data], self.network, self.base_name)
        require_tokens(
            [one.inputs["target_tokens"].tolist() for one in asked.data],
            self.network,
            self.base_name,
        )
        logprobs: list[Tensor] = [torch.empty(0)] * len(asked.data)
        total = 0.0
        order = sorted(range(len(asked.data)), key=lambda row: len(asked.data[row].ids))
        for start in range(0, len(order), _ROWS):
            rows = order[start : start + _ROWS]
            with torch.set_grad_enabled(not asked.forward_only):
                scored = logprobs_of(self.network, [asked.data[row] for row in rows])
                loss = torch.stack(
                    [
                        LOSSES[asked.loss](logp_T, asked.data[row].inputs, asked.bounds)
                        for row, logp_T in zip(rows, scored, strict=True)
                    ]
                ).sum()
            if not asked.forward_only:
                torch.autograd.backward(loss)
            total += loss.item()
            for row, logp_T in zip(rows, scored, strict=True):
                logprobs[row] = logp_T.detach()
        return logprobs, total

    def step(self, adam: Mapping[str, float]) -> dict[str, float]:
        """Apply the gradient that was accumulated, and forget it; return the gradient's norm.

        Args:
            adam: `learning_rate`, `beta1`, `beta2`, `eps`, `weight_decay` and `grad_clip_norm`, 0
                for no clipping.

        """
        for parameter in self._trained.values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        for group in self._optimizer.param_groups:
            group["lr"], group["eps"] = adam["learning_rate"], adam["eps"]
            group["betas"] = (adam["beta1"], adam["beta2"])
            group["weight_decay"] = adam["weight_decay"]
        limit = adam["grad_clip_norm"] or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self._trained.values(), limit)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return {"grad_norm": float(norm)}

    def weights(self) -> dict[str, Tensor]:
        """Return the trained weights of now, by name."""
        return {name: parameter.detach().cpu() for name, parameter in self._trained.items()}

    def save(self, path: Path) -> None:
        """Write weights and optimiser; a gradient that waits for its step is not kept."""
        tensors = {f"weight.{name}": p.detach() for name, p in self._trained.items()}
        for name, parameter in self._trained.items():
            for key, value in self._optimizer.state.get(parameter, {}).items():
                tensors[f"{key}.{name}"] = torch.as_tensor(value)
        part = path.with_suffix(".part")
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, part)
        part.replace(path)

    def restore(self, path: Path, *, with_optimizer: bool) -> None:
        """Take the weights of a file, and its optimiser where that is asked for."""
        saved = load_file(path)
        with torch.no_grad():
            for name, parameter in self._trained.items():
                parameter.copy_(saved[f"weight.{name}"])
        if not with_optimizer:
            return
        for name, parameter in self._trained.items():
            state = {
                key.removesuffix(f".{name}"): tensor
                for key, tensor in saved.items()
                if key.endswith(f".{name}") and not key.startswith("weight.")
            }
            if state:
                self._optimizer.state[parameter] = state


def logprobs_of(network: CausalLM, data: Sequence[Datum]) -> list[Tensor]:
    """Return the logprob of every target token of each datum, (T,), at temperature 1."""
    longest = max(len(one.ids) for one in data)
    ids_BT = torch.zeros(len(data), longest + 1, dtype=torch.int64, device=network.device)
    mask_BT = torch.zeros_like(ids_BT, dtype=torch.bool)
    for row, one in enumerate(data):
        ids_BT[row, : len(one.ids)] = torch.tensor(one.ids)
        mask_BT[row, 1 : len(one.ids) + 1] = True
    targets_M = torch.cat([one.inputs["target_tokens"] for one in data]).to(network.device)
    scores = chunked_logprobs_entropy(
        action_hidden(network.base_model, ids_BT, mask_BT),
        head_weight(network),
        targets_M,
        temperature=1.0,
        chunk=head_chunk(network),
        entropy="none",
    )
    return list(torch.split(scores.logprobs_M.cpu(), [len(one.ids) for one in data]))


def targets_of(*, attention: bool, mlp: bool, unembed: bool) -> tuple[str, ...]:
    """Return the layers that get matrices.

    Raises:
        RefusedError: The head is asked for, or nothing.

    """
    if unembed:
        raise RefusedError("this server trains no head; create the client with train_unembed=False")
    targets = (*(ATTENTION if attention else ()), *(MLP if mlp else ()))
    if not targets:
        raise RefusedError("nothing would be trained; set train_attn or train_mlp")
    return targets


def require_tokens(rows: Sequence[Sequence[int]], network: CausalLM, name: str) -> None:
    """Refuse ids that the vocabulary does not have.

    Raises:
        RefusedError: There is one.

    """
    size = len(head_weight(network))
    wrong = [token for row in rows for token in row if not 0 <= token < size]
    if wrong:
        raise RefusedError(f"{wrong[0]} is no token of {name}, which has 0 to {size - 1}")


def _require_inputs(asked: Pass) -> None:
    if asked.loss not in LOSSES:
        raise RefusedError(f"{asked.loss!r} is no loss of this server; it has {', '.join(LOSSES)}")
    for one in asked.data:
        if missing := [name for name in NEEDED[asked.loss] if name not in one.inputs]:
            raise RefusedError(f"{asked.loss} needs {', '.join(missing)} with each datum")
