"""A2TGPO's adaptive clip: an informative turn may move further (arXiv 2605.06200, Eq 11)."""

from dataclasses import dataclass

from torch import Tensor

from rltune.maths.checks import at_least_float32, require_mask, require_same_shape
from rltune.maths.masked import masked_mean, masked_std


@dataclass(frozen=True, slots=True)
class AdaptiveTurnClipper:
    """The factor of a turn's clip bounds, from its normalised information gain.

    c = 1 + beta (2 sigmoid(ig_hat) - 1)  where a turn has a gain, and 1 elsewhere

    c rises with the gain, is 1 at 0 and stays in [1 - beta, 1 + beta]. A ratio of that turn is then
    clipped to [1 - c clip_low, 1 + c clip_high]: see `rltune.losses.turn_ratio.turn_loss`.

    Usable alone, on plain tensors of any shape:

        >>> import torch
        >>> clipper = AdaptiveTurnClipper(beta=0.3)
        >>> ig_hat = torch.tensor([[2.0, -2.0, 0.0], [0.5, 0.0, 0.0]])
        >>> has_ig = torch.tensor([[True, True, False], [True, False, False]])
        >>> clipper(ig_hat, has_ig)
        tensor([[1.2285, 0.7715, 1.0000],
                [1.0735, 1.0000, 1.0000]])

    Differs from A2TGPO's released code, where 0.3 is written into the formula.

    Attributes:
        beta: How far c may move from 1; in [0, 1). 0 leaves the bounds as they are.

    Raises:
        ValueError: `beta` is out of range.

    """

    beta: float = 0.3

    def __post_init__(self) -> None:
        """Check the number."""
        if not 0 <= self.beta < 1:
            raise ValueError(
                f"beta is {self.beta!r}; it must lie in [0, 1). 0 switches the adaptive clip off."
            )

    def __call__(self, ig_hat: Tensor, has_ig: Tensor) -> Tensor:
        """Return the clip scale of each turn, without a gradient.

        Args:
            ig_hat: Information gain of each turn after normalisation; anything where there is none.
            has_ig: True where a turn has a gain. The answer turn has none.

        Returns:
            c in the shape of `ig_hat`, float32 or more.

        Raises:
            ValueError: Shapes differ, `has_ig` is not boolean, or a gain is not finite.

        """
        require_mask(has_ig, name="has_ig")
        require_same_shape(ig_hat=ig_hat, has_ig=has_ig)
        kept = at_least_float32(ig_hat.detach()).where(has_ig, 0)
        if not kept.isfinite().all():
            place = (~kept.isfinite()).nonzero()[0].tolist()
            raise ValueError(
                f"ig_hat{place} is not finite; set has_ig to False where a turn has no gain."
            )
        return 1 + self.beta * (2 * kept.sigmoid() - 1)  # exactly 1 at the 0 of no gain


def clip_scale_metrics(clip_scale: Tensor, has_ig: Tensor) -> dict[str, float]:
    """Return the mean and the population std of the clip scale over the turns with a gain.

    The answer turns, whose scale is 1 by definition, do not count: they would hide the spread.

    Returns:
        `ig/clip_scale_mean` and `ig/clip_scale_std`; nothing where no turn has a gain.

    Raises:
        ValueError: Shapes differ, or `has_ig` is not boolean.

    """
    mean, std = masked_mean(clip_scale, has_ig), masked_std(clip_scale, has_ig)
    if not has_ig.any():
        return {}
    return {"ig/clip_scale_mean": mean.item(), "ig/clip_scale_std": std.item()}
