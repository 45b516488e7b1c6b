"""The policy loss of a mini-batch by its configured kind; each is a pure function of `losses`."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rltune.losses.cispo import cispo_loss
from rltune.losses.correction import weigh
from rltune.losses.gspo import gspo_loss
from rltune.losses.policy import PolicyLoss, ppo_loss
from rltune.losses.reinforce import reinforce_loss
from rltune.losses.turn_ratio import turn_loss
from rltune.rollout.tokens import TokenBatch
from rltune.spec.schema.trial import LossConfig
from rltune.trainer.credit.estimate import Credit
from rltune.trainer.train_state import Signals


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What the losses choose from, (B, T)."""

    logp: Tensor
    old_logp: Tensor
    advantages: Tensor
    mask: Tensor
    turn_ids: Tensor
    clip_scale: Tensor | None
    config: LossConfig

    @property
    def bounds(self) -> dict[str, float]:
        return {"clip_low": self.config.clip_low, "clip_high": self.config.clip_high}


POLICY_LOSSES: dict[str, Callable[[_Inputs], PolicyLoss]] = {
    "ppo": lambda x: ppo_loss(
        x.logp, x.old_logp, x.advantages, mask_BT=x.mask, dual_clip=x.config.dual_clip, **x.bounds
    ),
    "gspo": lambda x: gspo_loss(x.logp, x.old_logp, x.advantages, mask_BT=x.mask, **x.bounds),
    "cispo": lambda x: cispo_loss(x.logp, x.old_logp, x.advantages, mask_BT=x.mask, **x.bounds),
    "reinforce": lambda x: reinforce_loss(x.logp, x.advantages, mask_BT=x.mask),
    "turn": lambda x: turn_loss(
        x.logp,
        x.old_logp,
        x.advantages,
        mask_BT=x.mask,
        turn_ids_BT=x.turn_ids,
        clip_scale_BT=x.clip_scale,
        **x.bounds,
    ),
}
"""`loss.kind` -> loss per token."""


def policy_loss(
    logp_BT: Tensor, batch: TokenBatch, signals: Signals, credit: Credit, config: LossConfig
) -> PolicyLoss:
    """Return the loss of each token, times the weight of its correction where there is one."""
    device = logp_BT.device
    inputs = _Inputs(
        logp=logp_BT,
        old_logp=signals.old_logp_NT,
        advantages=credit.advantages_NT,
        mask=torch.from_numpy(batch.action_mask_NT).to(device),
        turn_ids=torch.from_numpy(batch.turn_ids_NT).to(device),
        clip_scale=credit.clip_scale_NT,
        config=config,
    )
    loss = POLICY_LOSSES[config.kind](inputs)
    if credit.weights_NT is None:
        return loss
    return weigh(loss, credit.weights_NT, mask_BT=inputs.mask)
