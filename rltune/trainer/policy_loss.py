"""The policy loss of a mini-batch by its configured kind; each is a pure function of `losses`."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from rltune.losses.cispo import cispo_loss
from rltune.losses.correction import weigh
from rltune.losses.gspo import gspo_loss
from rltune.losses.policy import PolicyLoss, ppo_loss
from rltune.losses.reinforce import reinforce_loss
from rltune.losses.turn_ratio import turn_loss
from rltune.rollout.tokens import TokenBatch
from rltune.spec.schema.loss import Loss
from rltune.trainer.credit.estimate import Credit
from rltune.trainer.train_state import Signals

POLICY_LOSSES: dict[str, Callable[..., PolicyLoss]] = {
    "ppo": ppo_loss,
    "gspo": gspo_loss,
    "cispo": cispo_loss,
    "reinforce": reinforce_loss,
    "turn": turn_loss,
}
"""`loss.kind` -> loss per token; its parameters are fields of `LossInputs`, keys of its config, or
have a default."""


@dataclass(frozen=True, slots=True)
class LossInputs:
    """All inputs of policy losses; each loss takes the fields that its parameters name."""

    logp_BT: Tensor
    old_logp_BT: Tensor
    advantages_BT: Tensor
    mask_BT: Tensor
    turn_ids_BT: Tensor
    clip_scale_BT: Tensor | None

    def give(self, loss: Callable[..., PolicyLoss], config: Loss) -> PolicyLoss:
        """Call a loss with the tensors and the keys of its config that its parameters name."""
        asked = inspect.signature(loss).parameters
        given = {name: getattr(self, name) for name in self.__slots__} | dict(config)
        return loss(**{name: value for name, value in given.items() if name in asked})


def policy_loss(
    logp_BT: Tensor, batch: TokenBatch, signals: Signals, credit: Credit, config: Loss
) -> PolicyLoss:
    """Return the loss of each token, times the weight of its correction where there is one."""
    inputs = LossInputs(
        logp_BT=logp_BT,
        old_logp_BT=signals.old_logp_NT,
        advantages_BT=credit.advantages_NT,
        mask_BT=batch.action_mask_NT,
        turn_ids_BT=batch.turn_ids_NT,
        clip_scale_BT=credit.clip_scale_NT,
    )
    loss = inputs.give(POLICY_LOSSES[config.kind], config)
    if credit.weights_NT is None:
        return loss
    return weigh(loss, credit.weights_NT, mask_BT=inputs.mask_BT)
