"""Bi-level GAE: over the ends of turns first, then over the tokens inside each turn.

Turns, e_k = last sampled token of turn k:
    D_k = r_k + gamma_turn V(e_{k+1}) - V(e_k),    A_k = D_k + gamma_turn lam_turn A_{k+1}
Tokens of turn k before e_k:
    A_t = gamma V_next - V_t + gamma lam A_next,    A at e_k = A_k

VAGEN (arXiv 2510.16907), in RAGEN as `bi_level_gae`. The token level is GAE with the turn's return
A_k + V(e_k) as its only reward, so nothing flows across a turn's end but through that return.
"""

import torch
from torch import Tensor

from rltune.advantages.gae import GaeResult, gae, require_gae_inputs
from rltune.maths.checks import at_least_float32
from rltune.maths.turns import broadcast_turns, has_turn, turn_count, turn_ends, turn_sum


def gae_bilevel(
    rewards_NT: Tensor,
    values_NT: Tensor,
    mask_NT: Tensor,
    turn_ids_NT: Tensor,
    *,
    gamma: float,
    lam: float,
    gamma_turn: float,
    lam_turn: float,
    bootstrap_N: Tensor | None = None,
) -> GaeResult:
    """Return advantages and returns of the sampled tokens.

    With one turn, and gamma_turn = gamma, this is `gae`. Observation tokens, and turns without a
    sampled token, are passed over undiscounted.

    Differs from RAGEN, where each place with a reward other than 0 is the end of a turn: a turn of
    reward 0 joins the next one there, and a reward inside a turn splits it. Here the turn indices
    say where turns end, and a reward inside a turn is refused. RAGEN has one lambda for both
    levels, and whitens; here the caller whitens.

    Args:
        rewards_NT: Reward per token: a turn's reward on its last sampled token, 0 elsewhere.
        values_NT: Critic value at each token; any rubbish outside the mask.
        mask_NT: True on sampled tokens.
        turn_ids_NT: Turn of each sampled token, in order; not read outside the mask.
        gamma: Discount per sampled token of a turn, in [0, 1].
        lam: Weight of the longer returns inside a turn, in [0, 1].
        gamma_turn: Discount per turn, in [0, 1].
        lam_turn: Weight of the longer returns over turns, in [0, 1].
        bootstrap_N: Value of the state after a row's last turn, as in `gae`; None means 0.

    Raises:
        ValueError: As in `gae`; a sampled token is in no turn, the turns of a row are not in order,
            or a reward stands on a sampled token that is not the last of its turn.

    """
    require_gae_inputs(rewards_NT, values_NT, mask_NT, gamma=gamma, lam=lam)
    for name, number in (("gamma_turn", gamma_turn), ("lam_turn", lam_turn)):
        if not 0 <= number <= 1:
            raise ValueError(f"{name} is {number!r}; it must lie in [0, 1].")
    ends_NT = turn_ends(turn_ids_NT, mask_NT)
    _require_rewards_at_ends(rewards_NT, mask_NT & ~ends_NT)
    end_ids_NT = turn_ids_NT.where(ends_NT, -1)
    n_turns = turn_count(end_ids_NT)
    values = at_least_float32(values_NT.detach()).where(mask_NT, 0)
    high = gae(
        turn_sum(rewards_NT, end_ids_NT, n_turns=n_turns),
        turn_sum(values, end_ids_NT, n_turns=n_turns),
        has_turn(end_ids_NT, n_turns=n_turns),
        gamma=gamma_turn,
        lam=lam_turn,
        bootstrap_N=bootstrap_N,
    )
    at_ends_NT = broadcast_turns(high.advantages_NT, end_ids_NT)
    advantages = _inside_turns(at_ends_NT, values, mask_NT, ends_NT, gamma=gamma, lam=lam)
    return GaeResult(advantages_NT=advantages, returns_NT=advantages + values)


def _inside_turns(
    at_ends_NT: Tensor,
    values_NT: Tensor,
    mask_NT: Tensor,
    ends_NT: Tensor,
    *,
    gamma: float,
    lam: float,
) -> Tensor:
    """Carry the advantage at each turn's end back through the tokens of that turn."""
    next_value = next_advantage = torch.zeros_like(values_NT[:, :1].sum(1))
    advantages = torch.zeros_like(values_NT)
    for t in reversed(range(values_NT.shape[1])):
        keep = mask_NT[:, t]
        inside = gamma * next_value - values_NT[:, t] + gamma * lam * next_advantage
        advantage = at_ends_NT[:, t].where(ends_NT[:, t], inside)
        next_advantage = advantage.where(keep, next_advantage)
        next_value = values_NT[:, t].where(keep, next_value)
        advantages[:, t] = advantage.where(keep, 0)
    return advantages


def _require_rewards_at_ends(rewards_NT: Tensor, is_inside_NT: Tensor) -> None:
    is_misplaced = is_inside_NT & (rewards_NT != 0)
    if is_misplaced.any():
        row, t = is_misplaced.nonzero()[0].tolist()
        raise ValueError(
            f"reward {rewards_NT[row, t].item():g} at row {row}, token {t} stands inside a turn. "
            "Put a turn's reward on its last sampled token."
        )
