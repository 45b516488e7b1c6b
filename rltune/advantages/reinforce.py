"""REINFORCE++ and its baseline form (arXiv 2501.03262), without a critic.

G_t = r_t + gamma G_next;    with baseline: A_i = R_i - mean_g

Both are whitened over the sampled tokens of the whole batch by the caller, with
`rltune.maths.masked.masked_whiten`.
"""

import torch
from torch import Tensor

from rltune.advantages.gae import gae
from rltune.advantages.grpo import grpo_center


def reinforce_pp(rewards_NT: Tensor, mask_NT: Tensor, *, gamma: float) -> Tensor:
    """Return the discounted reward-to-go of each sampled token, (N, T); 0 elsewhere.

    "next" is the next *sampled* token: an observation token passes G_next unchanged and
    undiscounted. This is `gae` with all values 0 and lambda 1.

    Differs from the paper and verl's `compute_reinforce_plus_plus_outcome_advantage`: not whitened
    here; a reward on a token outside the mask is refused, because it would be lost.

    Args:
        rewards_NT: Reward per token, the final reward on the last sampled token of its turn.
        mask_NT: True on sampled tokens.
        gamma: Discount per sampled token, in [0, 1].

    Raises:
        ValueError: Shapes differ, the mask is not boolean, `gamma` is out of range, a reward on a
            sampled token is not finite, or a reward lies outside the mask (NaN there is padding).

    """
    no_critic_NT = torch.zeros_like(rewards_NT)
    return gae(rewards_NT, no_critic_NT, mask_NT, gamma=gamma, lam=1.0).advantages_NT


def reinforce_pp_baseline(rewards_N: Tensor, group_N: Tensor, *, singleton: float = 0.0) -> Tensor:
    """Return each reward minus its group's mean, one per trajectory.

    The caller broadcasts it over the sampled tokens and whitens those together, so that a long
    trajectory weighs more in the mean and the variance than a short one. Without the whitening
    this is `grpo_center`.

    Differs from verl, where the only member of a group keeps A = R. Here it gets `singleton`.

    Args:
        rewards_N: Episode rewards.
        group_N: Group of each trajectory: equal integers share a task.
        singleton: Advantage, before whitening, of a trajectory that is alone in its group.

    Raises:
        ValueError: Shapes differ, groups are not integers, or a reward is not finite.

    """
    return grpo_center(rewards_N, group_N, singleton=singleton)
