"""Information gain: what each turn added to the probability of the gold answer (A2TGPO, IGPO).

P_c = exp(mean over the gold answer's tokens of log p(token | context c)),   ig_k = P_{k+1} - P_k

Context 0 is the question alone and context c ends with the observation that answers turn c - 1; it
is what the policy saw when it began turn c. So the last turn of an episode, its answer, has no
gain. Gains are constants: no gradient flows through them. Sources: arXiv 2605.06200, 2510.14967.

For games the gold answer is the next actions of a perfect player. That is our extension: the gold
then differs from context to context, and a gain says that the turn made the right move plainer.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from rltune.maths.checks import at_least_float32, require_mask, require_same_shape
from rltune.maths.groups import group_sizes

IgType = Literal["prob_diff", "log_prob_diff"]
IG_TYPES: tuple[str, ...] = get_args(IgType)


@dataclass(frozen=True, slots=True)
class InfoGains:
    """Information gain of turns, with as many turn columns as there were context columns.

    Attributes:
        ig_NK: Gain of each turn, 0 where a turn has none; detached.
        has_ig_NK: True where a turn has a gain.

    """

    ig_NK: Tensor
    has_ig_NK: Tensor


@dataclass(frozen=True, slots=True)
class InformationGain:
    """Turns log-probabilities of the gold answer into gains per turn.

    prob_diff: ig_k = exp(l_{k+1}) - exp(l_k);   log_prob_diff: ig_k = l_{k+1} - l_k

    with l the mean log-probability of the gold answer's tokens. It needs nothing else of rltune:

    >>> import math, torch
    >>> gold = torch.tensor([[0.1, 0.3, 0.8]]).log()  # P after 0, 1 and 2 observations
    >>> gains = InformationGain()(gold, torch.tensor([3]))
    >>> [round(gain, 3) for gain in gains.ig_NK[0].tolist()]
    [0.2, 0.5, 0.0]
    >>> gains.has_ig_NK[0].tolist()
    [True, True, False]

    Differs from the released code of A2TGPO, and follows its paper: the default is the difference
    of probabilities, not of their logs; the first turn has a gain, against the question alone; the
    last search is scored after its result, not before; a gain of exactly 0 is a gain like others;
    a context that could not be scored is NaN here, not a swallowed exception.

    Args:
        ig_type: `prob_diff` (paper) or `log_prob_diff` (released code). The latter stays apart
            from 0 for long answers, whose probabilities are all tiny.

    Raises:
        ValueError: `ig_type` is neither.

    """

    ig_type: IgType = "prob_diff"

    def __post_init__(self) -> None:
        """Refuse an unknown type."""
        if self.ig_type not in IG_TYPES:
            raise ValueError(
                f"ig_type is {self.ig_type!r}; choose prob_diff (the paper's) or log_prob_diff "
                "(the released code's)."
            )

    def __call__(self, mean_logp_NC: Tensor, n_contexts_N: Tensor) -> InfoGains:
        """Return the gain of each turn.

        Only finite gains count. A context without a score is NaN and takes the gains on both its
        sides away; -inf is probability 0, which `prob_diff` can use and `log_prob_diff` cannot.

        Args:
            mean_logp_NC: Mean log-probability of the gold answer's tokens at each context, in
                nats; of several answers the best (`best_alias`). Anything past a row's contexts.
            n_contexts_N: Contexts of each row, int64: one for each turn, 0 to C.

        Raises:
            ValueError: The shapes do not fit, the counts are not int64, or one is outside 0 to C.

        """
        _require_contexts(mean_logp_NC, n_contexts_N)
        value_NC = at_least_float32(mean_logp_NC.detach())
        if self.ig_type == "prob_diff":
            value_NC = value_NC.exp()
        later_NC = torch.cat([value_NC[:, 1:], torch.full_like(value_NC[:, :1], torch.nan)], 1)
        ig_NK = later_NC - value_NC
        turn_K = torch.arange(ig_NK.shape[1], device=ig_NK.device)
        has_ig_NK = (turn_K < n_contexts_N[:, None] - 1) & ig_NK.isfinite()
        return InfoGains(ig_NK.where(has_ig_NK, 0), has_ig_NK)


def _require_contexts(mean_logp_NC: Tensor, n_contexts_N: Tensor) -> None:
    if mean_logp_NC.ndim != 2 or n_contexts_N.shape != mean_logp_NC.shape[:1]:
        raise ValueError(
            f"shapes do not fit: mean_logp_NC {tuple(mean_logp_NC.shape)}, "
            f"n_contexts_N {tuple(n_contexts_N.shape)}. Expected (N, C) and (N,)."
        )
    if n_contexts_N.dtype != torch.int64:
        raise ValueError(f"n_contexts_N has dtype {n_contexts_N.dtype}; expected int64 counts.")
    bad_N = (n_contexts_N < 0) | (n_contexts_N > mean_logp_NC.shape[1])
    if bad_N.any():
        row = int(bad_N.nonzero()[0])
        raise ValueError(
            f"n_contexts_N[{row}] is {int(n_contexts_N[row])}; it must lie in 0 to "
            f"{mean_logp_NC.shape[1]}, the columns of mean_logp_NC."
        )


def best_alias(mean_logp_NJ: Tensor, context_NJ: Tensor, *, n_contexts: int) -> Tensor:
    """Return the score of the best gold answer at each context, (N, C); NaN where there is none.

    l_c = max over the answers j of context c of l_j

    Differs from A2TGPO and IGPO, which score the first of several right answers only.

    Args:
        mean_logp_NJ: Mean log-probability of each scored answer; NaN does not count.
        context_NJ: Context of each answer, int64; -1 where a row has no further answer.
        n_contexts: C, the number of columns.

    Raises:
        ValueError: The shapes differ, the contexts are not int64, or one is outside -1 to C - 1.

    """
    require_same_shape(ndim=2, mean_logp_NJ=mean_logp_NJ, context_NJ=context_NJ)
    if context_NJ.dtype != torch.int64:
        raise ValueError(f"context_NJ has dtype {context_NJ.dtype}; expected int64 indices.")
    bad_NJ = (context_NJ < -1) | (context_NJ >= n_contexts)
    if bad_NJ.any():
        raise ValueError(
            f"context_NJ holds {int(context_NJ[bad_NJ][0])}; contexts count from 0 to "
            f"{n_contexts - 1}, and -1 is no answer."
        )
    counts_NJ = (context_NJ >= 0) & ~mean_logp_NJ.isnan()
    column_NJ = context_NJ.where(counts_NJ, n_contexts)  # the last column takes the rest
    kept_NJ = mean_logp_NJ.where(counts_NJ, -torch.inf)
    start = kept_NJ.new_full((len(kept_NJ), n_contexts + 1), torch.nan)
    best_NC = start.scatter_reduce(1, column_NJ, kept_NJ, "amax", include_self=False)
    return best_NC[:, :n_contexts]


def ig_metrics(ig_NK: Tensor, has_ig_NK: Tensor, group_N: Tensor) -> dict[str, float]:
    """Return the receipts of the gains: over all turns, and turn by turn.

    `ig/mean`, `ig/std`, `ig/turn_{k}/mean`, `ig/turn_{k}/std` (population standard deviations) and
    `ig/singleton_ratio`: the share of gains that are alone with their prompt and turn index, which
    `turn-group` normalises to 0. A statistic of no gains at all is left out.

    Args:
        ig_NK: Gain of each turn; anything where there is none.
        has_ig_NK: True where a turn has a gain.
        group_N: Prompt index of each row.

    Raises:
        ValueError: Shapes differ, the mask is not boolean or the groups are not integers.

    """
    require_mask(has_ig_NK, name="has_ig_NK")
    require_same_shape(ndim=2, ig_NK=ig_NK, has_ig_NK=has_ig_NK)
    metrics = _mean_std("ig", ig_NK[has_ig_NK])
    n_alone = 0
    for k in range(ig_NK.shape[1]):
        has_N = has_ig_NK[:, k]
        metrics |= _mean_std(f"ig/turn_{k}", ig_NK[has_N, k])
        n_alone += int((group_sizes(group_N[has_N]) == 1).sum())
    if metrics:
        metrics["ig/singleton_ratio"] = n_alone / int(has_ig_NK.sum())
    return metrics


def _mean_std(name: str, values: Tensor) -> dict[str, float]:
    if not len(values):
        return {}
    values = values.detach().double()
    std = values.std(correction=0)
    return {f"{name}/mean": values.mean().item(), f"{name}/std": std.item()}
