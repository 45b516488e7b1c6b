"""The critic: a scalar head on its own copy of the policy's backbone, or on the policy's own."""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rltune.maths.checks import at_least_float32
from rltune.policy.logprobs import action_hidden
from rltune.policy.row_tree import RowTree

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class ValueModel(nn.Module):
    """Value of the state before each sampled token; every value starts at 0.

    Args:
        policy: The policy at the trial's start.
        backbone: `own` copies the policy's backbone and trains the copy, as verl and RAGEN do.
            `policy` reads the policy's hidden states through a small network and sends no gradient
            back: half the cost of a step, and the policy's gradient stays the policy's.

    """

    def __init__(self, policy: PreTrainedModel, *, backbone: str) -> None:
        super().__init__()
        size = policy.config.hidden_size
        self.backbone = copy_of_trained(policy.base_model) if backbone == "own" else None
        last = nn.Linear(size if backbone == "own" else 2 * size, 1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        if backbone == "own":
            self.head: nn.Module = last
        else:
            self.head = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), last)
        self.head.to(device=policy.device, dtype=torch.promote_types(policy.dtype, torch.float32))

    def forward(
        self,
        ids_BT: Tensor,
        action_mask_BT: Tensor,
        policy_hidden_MD: Tensor | None,
        tree: RowTree | None = None,
    ) -> Tensor:
        """Return values (M,), in float32 or better, of the sampled tokens, in row-major order.

        `policy_hidden_MD` is what `action_hidden` gives for the policy's backbone on this batch; a
        critic with a backbone of its own does not read it. `tree` is the batch as prefix trees,
        which such a critic runs in place of the rows.
        """
        if self.backbone is not None:
            hidden_MD = action_hidden(self.backbone, ids_BT, action_mask_BT, tree=tree)
        elif policy_hidden_MD is not None:
            hidden_MD = policy_hidden_MD.detach()
        else:
            raise ValueError("a critic on the policy's backbone needs the policy's hidden states")
        # No view: hooks on the result fetch weights that are in shards for the backward pass.
        values_M: Tensor = self.head(at_least_float32(hidden_MD))[:, 0].clone()
        return values_M


def copy_of_trained(module: ModuleT) -> ModuleT:
    """Return a deep copy that shares the frozen parameters."""
    shared = {id(p): p for p in module.parameters() if not p.requires_grad}
    return copy.deepcopy(module, shared)


def frozen_copy(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy that never trains: the reference policy.

    With LoRA it has a copy of the present adapter on the policy's frozen weights. (The policy with
    its adapter off would be the base, not the start of a run from an adapter.)
    """
    reference = copy_of_trained(model)
    reference.requires_grad_(False)
    torch.nn.Module.eval(reference)
    return reference
