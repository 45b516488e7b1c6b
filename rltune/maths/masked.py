"""Sums, means and whitening over the places where a mask is True.

Places outside the mask are dropped by `where`, never by a product: `0 * nan` is `nan`, and padding
often holds rubbish.
"""

from torch import Tensor

from rltune.maths.checks import require_mask, require_same_shape


def masked_sum(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Return the sum of `x` where `mask` is True, over all dimensions or over `dim`.

    Shapes: `x` and `mask` equal; the result is a scalar, or `x` without `dim`.

    Raises:
        ValueError: The shapes differ or the mask is not boolean.

    """
    require_mask(mask, name="mask")
    require_same_shape(x=x, mask=mask)
    kept = x.where(mask, 0)
    return kept.sum() if dim is None else kept.sum(dim)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of `x` where `mask` is True; 0 when it is True nowhere.

    mean = sum(x m) / max(sum(m), 1). verl divides by sum(m) + 1e-8 instead, which biases the mean.
    """
    return masked_sum(x, mask) / mask.sum().clamp(min=1)


def masked_std(x: Tensor, mask: Tensor) -> Tensor:
    """Return the population standard deviation of `x` where `mask` is True; 0 when nowhere."""
    return masked_mean((x - masked_mean(x, mask)).square(), mask).sqrt()


def masked_whiten(x: Tensor, mask: Tensor, *, eps: float = 1e-8) -> Tensor:
    """Return `x` with mean 0 and variance 1 over the masked-in places, and 0 elsewhere.

    x' = (x - mean) / sqrt(var + eps),  var unbiased: sum((x - mean)^2) / (n - 1)

    As verl's `masked_whiten`. Differs: verl raises with fewer than two masked-in places. A variance
    does not exist there, so the result is centred only, which is 0.

    Args:
        x: Values of any shape; all places of the batch are whitened together.
        mask: True where `x` counts.
        eps: Added to the variance, so that equal values give 0 and not a division by zero.

    Raises:
        ValueError: The shapes differ or the mask is not boolean.

    """
    centred = (x - masked_mean(x, mask)).where(mask, 0)
    n = mask.sum()
    variance = masked_sum(centred.square(), mask) / (n - 1).clamp(min=1)
    return centred * (variance + eps).rsqrt().where(n > 1, 1)
