"""Generalised advantage estimation over sampled tokens (arXiv 1506.02438).

delta_t = r_t + gamma V_next - V_t,    A_t = delta_t + gamma lam A_next
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rltune.maths.checks import at_least_float32, require_mask, require_same_shape


@dataclass(frozen=True, slots=True)
class GaeResult:
    """The result of the reverse scan; both are constants (detached) and 0 outside the mask.

    Attributes:
        advantages_NT: Unwhitened advantages; see `rltune.maths.masked.masked_whiten`.
        returns_NT: Targets of the critic, A + V.

    """

    advantages_NT: Tensor
    returns_NT: Tensor


def gae(
    rewards_NT: Tensor,
    values_NT: Tensor,
    mask_NT: Tensor,
    *,
    gamma: float,
    lam: float,
    bootstrap_N: Tensor | None = None,
) -> GaeResult:
    """Return advantages and returns of the sampled tokens.

    "next" is the next *sampled* token: an observation token carries V_next and A_next through
    unchanged and undiscounted. After the last sampled token A_next = 0 and V_next = bootstrap.

    Differs from verl's `compute_gae_advantage_return`: not whitened here; a reward on a token
    outside the mask is refused, because the scan would lose it without a word.

    Args:
        rewards_NT: Reward per token, the final reward on the last sampled token of its turn.
        values_NT: Critic value at each token; any rubbish outside the mask.
        mask_NT: True on sampled tokens.
        gamma: Discount per sampled token, in [0, 1].
        lam: Weight of the longer returns, in [0, 1]; 1 gives return minus value.
        bootstrap_N: Value of the state after a row's last sampled token, for episodes that a limit
            cut off: the critic's value of the state they stopped in, and 0 on terminated rows.
            None means 0 everywhere: a cut-off episode counts as over, which is RAGEN's protocol.

    Raises:
        ValueError: Shapes differ, the mask is not boolean, a number is out of range, a reward on a
            sampled token is not finite, or a reward lies outside the mask (NaN there is padding).

    """
    require_gae_inputs(rewards_NT, values_NT, mask_NT, gamma=gamma, lam=lam)
    rewards = at_least_float32(rewards_NT.detach()).where(mask_NT, 0)
    values = at_least_float32(values_NT.detach()).where(mask_NT, 0)
    next_value = torch.zeros_like(values[:, :1].sum(1))
    if bootstrap_N is not None:
        require_same_shape(bootstrap_N=bootstrap_N, row=next_value)
        next_value = bootstrap_N.detach().to(values.dtype)
    next_advantage = torch.zeros_like(next_value)
    advantages = torch.zeros_like(values)
    for t in reversed(range(values.shape[1])):
        keep = mask_NT[:, t]
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        next_advantage = (delta + gamma * lam * next_advantage).where(keep, next_advantage)
        next_value = values[:, t].where(keep, next_value)
        advantages[:, t] = next_advantage.where(keep, 0)
    return GaeResult(advantages_NT=advantages, returns_NT=advantages + values)


def require_gae_inputs(
    rewards_NT: Tensor, values_NT: Tensor, mask_NT: Tensor, *, gamma: float, lam: float
) -> None:
    """Raise unless `gae` can use these inputs.

    Raises:
        ValueError: As in `gae`.

    """
    require_mask(mask_NT, name="mask_NT")
    require_same_shape(ndim=2, rewards_NT=rewards_NT, values_NT=values_NT, mask_NT=mask_NT)
    for name, number in (("gamma", gamma), ("lam", lam)):
        if not 0 <= number <= 1:
            raise ValueError(f"{name} is {number!r}; it must lie in [0, 1].")
    if not rewards_NT[mask_NT].isfinite().all():
        raise ValueError("a reward on a sampled token is not finite; check the env or verifier.")
    lost = ~mask_NT & (rewards_NT != 0) & ~rewards_NT.isnan()
    if lost.any():
        row, t = lost.nonzero()[0].tolist()
        raise ValueError(
            f"reward {rewards_NT[row, t].item():g} at row {row}, token {t} lies outside the mask "
            "and would be lost. Put a turn's reward on its last sampled token."
        )
