"""What a rollout filter can do, read from its keys; the filter is `rltune.rollout.filter`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltune.spec.schema.rollout import RolloutConfig, RolloutFilter


@dataclass(frozen=True, slots=True)
class FilterEffect:
    """Which groups a filter may drop."""

    keys: "RolloutFilter"  # the section `rollout_filter`
    groups: int  # groups of a step

    @property
    def is_spread(self) -> bool:
        """Whether the score is a spread of rewards, which is often 0.

        A mean length is 0 only where nothing was sampled, a mean surprisal only where every token
        of a group was certain.
        """
        return self.keys.metric.startswith("reward")

    @property
    def is_ranked(self) -> bool:
        """Whether a group may be dropped because others have a better score."""
        if self.keys.strategy == "top_k_abs":
            return self.keys.value < self.groups
        return self.keys.strategy == "min_p" or self.keys.value < 1.0

    @property
    def is_share(self) -> bool:
        """Whether a share of the scores is kept, of their sum or of their softmax."""
        return self.keys.strategy == "top_p" and self.keys.value < 1.0

    @property
    def is_share_of_mass(self) -> bool:
        """Whether a share of the scores' sum is kept: groups that score 0 do not count."""
        return self.keys.strategy == "top_p" and self.keys.mode == "mass" and self.is_share

    @property
    def drops_zeros(self) -> bool:
        """Whether a group may be dropped because its rewards are equal."""
        return self.is_spread and not self.keys.include_zero

    @property
    def can_drop(self) -> bool:
        """Whether any group may be dropped."""
        return self.is_ranked or self.drops_zeros

    @property
    def looks_at_zeros(self) -> bool:
        """Whether `include_zero` decides anything, the other keys given.

        A share of the mass, best first, is full before the groups that score 0.
        """
        return self.is_spread and not (self.is_share_of_mass and self.keys.type == "largest")


def effect_of(rollout_filter: "RolloutFilter", rollout: "RolloutConfig") -> FilterEffect:
    """Return the effect of a filter on the groups of a step."""
    return FilterEffect(rollout_filter, rollout.groups)
