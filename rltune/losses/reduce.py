"""From a loss per token to one number, so that any micro-batch split gives the same gradient.

The denominators count the whole mini-batch of an optimiser step, or are constants of the config.
The caller counts once with `count_trained`, then adds up `aggregate` over the micro-batches: no
division by their number.
"""

from dataclasses import dataclass

from torch import Tensor

from rltune.maths.checks import require_mask, require_same_shape
from rltune.maths.masked import masked_sum


@dataclass(frozen=True, slots=True)
class TrainedCounts:
    """The counts in the denominators.

    Attributes:
        n_tokens: Sampled tokens.
        n_sequences: Rows with at least one sampled token.

    """

    n_tokens: int
    n_sequences: int


def count_trained(mask_BT: Tensor) -> TrainedCounts:
    """Count the sampled tokens, and the rows that have any, of one mini-batch."""
    require_mask(mask_BT, name="mask_BT")
    require_same_shape(ndim=2, mask_BT=mask_BT)
    return TrainedCounts(n_tokens=int(mask_BT.sum()), n_sequences=int(mask_BT.any(dim=1).sum()))


CONSTANT = "seq-mean-token-sum-norm"
"""The aggregation whose denominator no batch can move."""

AGGREGATIONS: tuple[str, ...] = (
    "token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    CONSTANT,
)


def side_divisor(mode: str, *, n_tokens: float, mini_batch_size: float, sum_norm: float) -> float:
    """Return what the sums over tokens of entropy, KL and value loss are divided by.

    They are means over tokens whatever the policy loss is aggregated by, so that a coefficient has
    one unit. Under `seq-mean-token-sum-norm` they have its constant, too: a mini-batch with one row
    left to train on pulls with the weight of one row, not of a full mini-batch. (verl aggregates
    them like the policy loss.)

    Args:
        mode: One of `AGGREGATIONS`.
        n_tokens: Sampled tokens of the whole mini-batch.
        mini_batch_size: Rows of a full mini-batch, `optim.mini_batch_size`.
        sum_norm: The constant of `seq-mean-token-sum-norm`, in tokens.

    """
    return mini_batch_size * sum_norm if mode == CONSTANT else n_tokens


def aggregate(
    loss_BT: Tensor,
    mask_BT: Tensor,
    *,
    mode: str,
    n_tokens: float,
    n_sequences: float,
    mini_batch_size: float,
    sum_norm: float,
) -> Tensor:
    """Return this micro-batch's share of the mini-batch loss.

    token-mean               sum(L m) / n_tokens
    seq-mean-token-sum       sum(L m) / n_sequences
    seq-mean-token-mean      sum_i (sum_t L m / len_i) / n_sequences     (original GRPO)
    seq-mean-token-sum-norm  sum(L m) / mini_batch_size / sum_norm       (Dr.GRPO)

    verl's `loss_agg_mode`. Differs: the counts are required, because verl's fall-back to local
    counts weighs tokens by the micro-batch they fall into. Both denominators of
    `seq-mean-token-sum-norm` are constants of the config, so that a token weighs the same however
    many rows are left to train on; verl takes the rows of the batch and its padded width.

    Args:
        loss_BT: Loss per token of this micro-batch; any rubbish outside the mask.
        mask_BT: True on sampled tokens. A row without any adds nothing and is not counted.
        mode: One of `AGGREGATIONS`.
        n_tokens: Sampled tokens of the whole mini-batch.
        n_sequences: Rows of the whole mini-batch with at least one sampled token.
        mini_batch_size: Rows of a full mini-batch, trained on or not; unused by the other modes.
        sum_norm: The constant of `seq-mean-token-sum-norm`, > 0; unused by the other modes.

    Raises:
        ValueError: Unknown mode, differing shapes, a count that is too small, or `sum_norm` <= 0.

    """
    if mode not in AGGREGATIONS:
        raise ValueError(
            f"{mode!r} is not an aggregation. Choose one of {', '.join(AGGREGATIONS)}."
        )
    require_same_shape(ndim=2, loss_BT=loss_BT, mask_BT=mask_BT)
    denominators = {
        "n_tokens": n_tokens,
        "n_sequences": n_sequences,
        "mini_batch_size": mini_batch_size,
        "sum_norm": sum_norm,
    }
    for name, number in denominators.items():
        if not number > 0:
            raise ValueError(
                f"{name} is {number!r}; it must be positive. "
                "Skip a mini-batch without trained tokens."
            )
    sum_B = masked_sum(loss_BT, mask_BT, dim=1)
    match mode:
        case "token-mean":
            return sum_B.sum() / n_tokens
        case "seq-mean-token-sum":
            return sum_B.sum() / n_sequences
        case "seq-mean-token-mean":
            return (sum_B / mask_BT.sum(dim=1).clamp(min=1)).sum() / n_sequences
        case _:  # seq-mean-token-sum-norm
            return sum_B.sum() / mini_batch_size / sum_norm
