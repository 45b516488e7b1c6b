"""Weights and states of optimisers in files: from the ranks, and back to them."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from rltune.policy.load import FROZEN
from rltune.policy.lora import trained_parameters
from rltune.remote.model import RemoteAdamW, RemoteModel
from rltune.trainer.ranks.shard import like
from rltune.trainer.ranks.tensor_file import write_tensors
from rltune.trainer.train_state import TrainState


def modules_of(train_state: TrainState) -> dict[str, torch.nn.Module]:
    """Return the modules whose weights are here."""
    if isinstance(train_state.policy.model, RemoteModel):
        return {}
    critic = {} if train_state.critic is None else {"critic": train_state.critic}
    return {"policy": train_state.policy.model, **critic}


def optimizers_of(train_state: TrainState) -> dict[str, torch.optim.Optimizer]:
    """Return the optimisers whose states are here."""
    if isinstance(train_state.actor_optimizer, RemoteAdamW):
        return {}
    optimizer = train_state.critic_optimizer
    critic = {} if optimizer is None else {"critic_optimizer": optimizer}
    return {"actor_optimizer": train_state.actor_optimizer, **critic}


@torch.no_grad()
def take_over(train_state: TrainState) -> None:
    """Copy the trained shards into the first rank's copy, if any, one weight at a time."""
    if train_state.sharded is None or not train_state.is_copied:
        return
    group = train_state.group
    whole = trained_parameters(train_state.policy.model)
    for name, shard in trained_parameters(train_state.sharded.model).items():
        weight = group.whole(shard)
        if group.rank == 0:
            whole[name].copy_(weight)


@torch.no_grad()
def restore_module(module: torch.nn.Module, path: Path) -> None:
    """Copy the parameters of a file into those that a module trains."""
    saved = load_file(path)
    for name, parameter in trained_parameters(module).items():
        parameter.copy_(like(saved[name], parameter))


def restore(train_state: TrainState, folder: Path) -> None:
    """Restore what this rank holds of weights and optimisers."""
    modules = modules_of(train_state)
    if train_state.sharded is not None:
        restore_module(train_state.sharded.model, folder / "policy.safetensors")
        if not (train_state.is_copied and train_state.group.rank == 0):
            del modules["policy"]  # those shards again
    for name, module in modules.items():
        restore_module(module, folder / f"{name}.safetensors")
    for name, optimizer in optimizers_of(train_state).items():
        _restore_optimizer(optimizer, folder / f"{name}.safetensors")


def write_module(train_state: TrainState, name: str, path: Path, frozen: str) -> None:
    """Write what a module trains: a tied weight once, under its first name.

    Args:
        train_state: Has it.
        name: `policy` or `critic`.
        path: The file, which the first rank writes.
        frozen: Digest of the frozen weights, which go with it; empty where none are.

    """
    group, module = train_state.group, modules_of(train_state)[name]
    if name == "policy" and train_state.is_copied and group.rank > 0:
        return  # the first rank has it whole
    metadata = {FROZEN: frozen} if frozen else None
    write_tensors(path, trained_parameters(module), group, metadata)


def write_optimizer(train_state: TrainState, name: str, path: Path) -> None:
    """Write AdamW's state as `<parameter index>.<name>`; nothing before the first step."""
    optimizer = optimizers_of(train_state)[name]
    state: dict[int, dict[str, Any]] = optimizer.state_dict()["state"]
    tensors = {
        f"{index}.{key}": torch.as_tensor(value)
        for index, entry in state.items()
        for key, value in entry.items()
    }
    write_tensors(path, tensors, train_state.group)


def _restore_optimizer(optimizer: torch.optim.Optimizer, path: Path) -> None:
    state: dict[int, dict[str, torch.Tensor]] = {}
    parameters = [parameter for own in optimizer.param_groups for parameter in own["params"]]
    for key, tensor in load_file(path).items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = like(tensor, parameters[int(index)])
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
