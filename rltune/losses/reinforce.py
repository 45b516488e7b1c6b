"""REINFORCE: the plain policy gradient, without a ratio (Williams 1992)."""

from torch import Tensor

from rltune.losses.policy import PolicyLoss
from rltune.maths.checks import at_least_float32, require_mask, require_same_shape


def reinforce_loss(logp_BT: Tensor, advantages_BT: Tensor, *, mask_BT: Tensor) -> PolicyLoss:
    """Return the loss of each token.

    L = -A logp

    The gradient is that of `ppo_loss` while the policy is still the one that sampled. With several
    mini-batches or epochs per step nothing corrects for how far it has moved, and nothing holds it.

    Args:
        logp_BT: Logprobs under the policy that is trained; the only input with a gradient.
        advantages_BT: One advantage per token.
        mask_BT: True on sampled tokens.

    Returns:
        The loss, and no sums: without a ratio there is nothing to clip or to compare.

    Raises:
        ValueError: Shapes differ, or the mask is not boolean.

    """
    require_mask(mask_BT, name="mask_BT")
    require_same_shape(ndim=2, logp_BT=logp_BT, advantages_BT=advantages_BT, mask_BT=mask_BT)
    logp = at_least_float32(logp_BT).where(mask_BT, 0)
    advantages = advantages_BT.detach().where(mask_BT, 0)
    return PolicyLoss(per_token_BT=-advantages * logp, sums={})
