"""A2TGPO: outcome and information gain as one advantage per turn (arXiv 2605.06200).

ig^ = (ig - mean) / (std + eps) over a group of gains,   R^ likewise over the outcomes of a prompt
D_t = sum_{k >= t} gamma^(k - t) ig^_k
A_t = ig_coef D_t / sqrt(n_t) + R^,    A = R^ on the answer turn

Differs from the released code, on purpose, and follows the paper where the two part:

- Gains are normalised as they are. In its `turn-group` mode the code first rescales all gains of a
  batch to the spread of the outcomes, discounts before it normalises (the outcome twice), and adds
  1.5 times the outcome. Here that mode is the normalisation alone, accumulated like the others.
- The outcome is added to every turn undiscounted, in every mode (equations 8 and 9). IGPO, and the
  code in `joint` and `separate`, discount it by gamma per turn; at gamma 1 that is the same.
- The weight of the gains is an argument: 1.0 is the paper's, 0.3 that of the released scripts.
- A gain of exactly 0 counts and keeps its turn. The code drops it, and later turns then move up
  into the group of an earlier turn.
- The standard deviation has no floor but `eps`. The code's is sqrt(var + 1e-8), which takes gains
  of long answers (about 1e-6) to 0; `log_prob_diff` is the way out, `min_std` a floor by choice.
- Two gains in a group are always -1 and 1 (up to `eps`): so small a group only ranks.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from rltune.advantages.grpo import grpo
from rltune.maths.checks import (
    at_least_float32,
    require_mask,
    require_same_shape,
)
from rltune.maths.turns import discounted_suffix_sum
from rltune_envs.choices import require_choice

Mode = Literal["joint", "separate", "turn-group", "turn-group-v1d"]
MODES: tuple[str, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class Normalised:
    """Outcomes and gains in units of their groups' standard deviations; detached.

    Attributes:
        outcome_N: R^, one per trajectory.
        ig_NK: ig^, one per turn, 0 where a turn has no gain.

    """

    outcome_N: Tensor
    ig_NK: Tensor


@dataclass(frozen=True, slots=True)
class TurnGroupNormalizer:
    """Normalises gains among those they are comparable with. It needs nothing else of rltune.

    joint: outcomes and gains of a prompt in one group; separate: the gains of a prompt in one
    group, all turns alike; turn-group and turn-group-v1d: the gains of a prompt and a turn index.
    The latter two differ in `is_rescaled` alone. Outcomes are grouped by prompt but in `joint`.

    >>> import torch
    >>> outcome, prompt = torch.tensor([1.0, 0.0]), torch.tensor([0, 0])
    >>> gain = torch.tensor([[0.4, 0.0], [0.2, 0.1]])
    >>> has_gain = torch.tensor([[True, False], [True, True]])
    >>> normalised = TurnGroupNormalizer(eps=0.0)(outcome, gain, has_gain, prompt)
    >>> [round(x, 3) for x in normalised.outcome_N.tolist()]
    [1.0, -1.0]
    >>> [[round(x, 3) for x in row] for row in normalised.ig_NK.tolist()]
    [[1.0, 0.0], [-1.0, 0.0]]

    The gain 0.1 is alone with its turn index, so it says nothing and becomes 0.

    Args:
        mode: One of `MODES`.
        eps: Added to the (population) standard deviation.
        min_std: A group whose standard deviation is at or below this is centred only.

    Raises:
        ValueError: `mode` is unknown, or `eps` or `min_std` is negative.

    """

    mode: Mode = "turn-group"
    eps: float = 1e-6
    min_std: float = 0.0

    def __post_init__(self) -> None:
        """Refuse an unknown mode and negative numbers."""
        require_choice("mode", self.mode, MODES)
        for name, number in (("eps", self.eps), ("min_std", self.min_std)):
            if not number >= 0:
                raise ValueError(f"{name} is {number!r}; it must be 0 or more.")

    @property
    def is_rescaled(self) -> bool:
        """Whether this mode divides accumulated gains by sqrt(their number), as the paper does."""
        return self.mode == "turn-group-v1d"

    def __call__(
        self, outcome_N: Tensor, ig_NK: Tensor, has_ig_NK: Tensor, group_N: Tensor
    ) -> Normalised:
        """Return normalised outcomes and gains; 0 for a group of one or without spread.

        Args:
            outcome_N: Outcome reward of each trajectory.
            ig_NK: Gain of each turn; anything, NaN too, where it has none.
            has_ig_NK: True where a turn has a gain.
            group_N: Prompt of each trajectory: equal integers share a task.

        Raises:
            ValueError: Shapes do not fit, the mask is not boolean, groups are not integers, or an
                outcome or a gain that counts is not finite.

        """
        _require_gains(outcome_N, ig_NK, has_ig_NK, group_N)
        dtype = torch.promote_types(outcome_N.dtype, ig_NK.dtype)
        outcome_N = at_least_float32(outcome_N.detach().to(dtype))
        ig_M = ig_NK.detach()[has_ig_NK].to(outcome_N.dtype)
        row_M, turn_M = has_ig_NK.nonzero(as_tuple=True)
        if self.mode == "joint":
            pooled = self._z(torch.cat([outcome_N, ig_M]), torch.cat([group_N, group_N[row_M]]))
            outcome_N, ig_M = torch.split(pooled, [len(outcome_N), len(ig_M)])
        else:
            prompt_M = torch.unique(group_N, return_inverse=True)[1][row_M]
            is_by_turn = self.mode != "separate"
            key_M = prompt_M * ig_NK.shape[1] + turn_M if is_by_turn else prompt_M
            outcome_N, ig_M = self._z(outcome_N, group_N), self._z(ig_M, key_M)
        start_NK = outcome_N.new_zeros(ig_NK.shape)
        return Normalised(outcome_N, start_NK.masked_scatter(has_ig_NK, ig_M))

    def _z(self, values_M: Tensor, group_M: Tensor) -> Tensor:
        return grpo(values_M, group_M, ddof=0, eps=self.eps, min_std=self.min_std, singleton=0.0)


def _require_gains(outcome_N: Tensor, ig_NK: Tensor, has_ig_NK: Tensor, group_N: Tensor) -> None:
    require_mask(has_ig_NK, name="has_ig_NK")
    require_same_shape(ndim=2, ig_NK=ig_NK, has_ig_NK=has_ig_NK)
    require_same_shape(
        ndim=1, outcome_N=outcome_N, group_N=group_N, rows=ig_NK.new_zeros(len(ig_NK))
    )
    bad_N = ~outcome_N.isfinite()
    if bad_N.any():
        row = int(bad_N.nonzero()[0])
        raise ValueError(f"outcome_N[{row}] is not finite; mask the trajectory out before this.")
    bad_NK = has_ig_NK & ~ig_NK.isfinite()
    if bad_NK.any():
        row, turn = bad_NK.nonzero()[0].tolist()
        raise ValueError(
            f"ig_NK[{row}, {turn}] is not finite but has_ig_NK is True there; set it False for a "
            "turn whose gain is unknown."
        )


def accumulate(
    normalised: Normalised,
    has_ig_NK: Tensor,
    is_turn_NK: Tensor,
    *,
    gamma: float,
    ig_coef: float,
    is_rescaled: bool,
) -> Tensor:
    """Return the advantage of each turn, (N, K); 0 where there is no turn.

    A_t = ig_coef D_t / sqrt(n_t) + R^    with n_t = the gains at turn t and after; 1 not rescaled

    D_t is the module's sum over turns t and after; a turn whose gain is unknown adds nothing to it
    and still counts as a turn of discount. Without a gain at or after turn t, A_t = R^: always so
    on the answer turn.

    Args:
        normalised: From `TurnGroupNormalizer`.
        has_ig_NK: True where a turn has a gain; never on a row's last turn.
        is_turn_NK: True where a row has a turn.
        gamma: Discount of later gains per turn, in [0, 1]; 1.0 in the paper.
        ig_coef: Weight of the gains beside the outcome, 0 or more; 0 leaves the outcome alone.
        is_rescaled: Divide by sqrt(n_t), so that early turns do not vary more than late ones.

    Raises:
        ValueError: Shapes do not fit, a mask is not boolean, a number is out of range, or a row's
            last turn, or a place without a turn, has a gain.

    """
    require_mask(has_ig_NK, name="has_ig_NK")
    require_mask(is_turn_NK, name="is_turn_NK")
    require_same_shape(ndim=2, ig_NK=normalised.ig_NK, has_ig_NK=has_ig_NK, is_turn_NK=is_turn_NK)
    require_same_shape(ndim=1, outcome_N=normalised.outcome_N, rows=has_ig_NK.sum(1))
    if not 0 <= ig_coef < float("inf"):
        raise ValueError(f"ig_coef is {ig_coef!r}; it must be 0 or more, and finite.")
    is_early_NK = is_turn_NK & (_from_here(is_turn_NK) > 1)
    if (has_ig_NK & ~is_early_NK).any():
        row, turn = (has_ig_NK & ~is_early_NK).nonzero()[0].tolist()
        raise ValueError(
            f"has_ig_NK[{row}, {turn}] is True, but turn {turn} is the last of row {row} or none; "
            "a gain needs a turn after it."
        )
    ig_NK = normalised.ig_NK.where(has_ig_NK, 0)
    sum_NK = discounted_suffix_sum(ig_NK, is_turn_NK, gamma=gamma)
    if is_rescaled:
        sum_NK = sum_NK / _from_here(has_ig_NK).clamp(min=1).to(sum_NK.dtype).sqrt()
    return (ig_coef * sum_NK + normalised.outcome_N[:, None]).where(is_turn_NK, 0)


def _from_here(is_NK: Tensor) -> Tensor:
    """Return, for each column, in how many columns from it on a row is True."""
    return is_NK.flip(1).cumsum(1).flip(1)
