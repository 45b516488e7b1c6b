"""Weights in shards: FSDP2 over the blocks of a model, so that one block at a time is whole.

Gradients are summed over the ranks, not averaged: every loss is divided by what its whole
mini-batch counts.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from rltune.errors import Problem, ResourceError
from rltune.policy.gradient_checkpointing import blocks_of
from rltune.policy.load import CausalLM, frozen_digest
from rltune.policy.value_head import ValueModel
from rltune.trainer.ranks.group import Group, Ranks

T = TypeVar("T")


class ShardedModel(nn.Module):
    """A causal LM in shards. What reads its weights runs in its forward pass, where it has them.

    Args:
        model: The causal LM.

    """

    def __init__(self, model: CausalLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, compute: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Return what a function of the model computes: a tensor, or a tuple of them."""
        return compute(self.model, *args, **named)


def computed(model: CausalLM | ShardedModel, compute: Callable[[CausalLM], T]) -> T:
    """Return what a function of a model computes: a tensor, or a tuple of them.

    All ranks of one in shards call this together.
    """
    if not isinstance(model, ShardedModel):
        return compute(model)
    result: T = model(compute)
    return result


def whole_model(model: CausalLM | ShardedModel) -> CausalLM:
    """Return a model whose weights are all here.

    Raises:
        ValueError: They are in shards.

    """
    if isinstance(model, ShardedModel):
        raise ValueError("weights in shards can be read in their forward pass only")
    return model


def shard_model(model: CausalLM, group: Group) -> CausalLM | ShardedModel:
    """Return a model with this rank's shards in place of its parameters; alone, as it is."""
    if not isinstance(group, Ranks):
        return model
    sharded = ShardedModel(model)
    _shard(sharded, model.base_model, group)
    return sharded


def shard_critic(critic: ValueModel, group: Group) -> str:
    """Replace a critic's parameters by this rank's shards; alone, leave it as it is.

    Returns:
        The digest of its frozen weights, which no rank has whole any more; empty where none are.

    """
    if not isinstance(group, Ranks):
        return ""
    digest = frozen_digest(critic)
    _shard(critic, critic.backbone, group)
    return digest


def _shard(root: nn.Module, backbone: nn.Module | None, group: Ranks) -> None:
    """Shard each block of a backbone by itself, and all else of the root together.

    Also the root's weights are given back after a forward pass: without a backward pass they would
    stay as they are, and be read again after the next update.
    """
    from torch.distributed.fsdp import FSDPModule, fully_shard

    require_fsdp(FSDPModule)
    for block in blocks_of(backbone) if backbone is not None else []:
        fully_shard(block, mesh=group.mesh)
    fully_shard(root, mesh=group.mesh, reshard_after_forward=True)
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo cannot scale


def require_fsdp(kind: type) -> None:
    """Raise ResourceError where torch is too old to sum gradients over ranks."""
    if not hasattr(kind, "set_force_sum_reduction_for_comms"):
        what = f"torch {torch.__version__} cannot sum the gradients of ranks."
        raise ResourceError(Problem("resources.ranks", what, action="Install a newer torch."))


def like(tensor: Tensor, parameter: Tensor) -> Tensor:
    """Return this rank's shard of a whole tensor, laid out as a parameter's; or the tensor.

    Nothing is exchanged: each rank has the whole tensor.
    """
    placements, mesh = (getattr(parameter, name, None) for name in ("placements", "device_mesh"))
    is_number = tensor.shape != parameter.shape  # AdamW's count of steps
    if placements is None or mesh is None or is_number:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(mesh.device_type), mesh, placements, src_data_rank=None)
