"""What a rollout filter can do, read off its keys; the filter is `rltune.rollout.filter`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltune.spec.schema.rollout import RolloutConfig, RolloutFilter


@dataclass(frozen=True, slots=True)
class FilterEffect:
    """Which groups a filter may drop.

    Attributes:
        strategy: As in `rollout_filter`.
        value: The same.
        mode: The same; empty where the strategy has none.
        metric: The same.
        kind: `rollout_filter.type`.
        include_zero: The same.
        groups: Groups of a step.

    """

    strategy: str
    value: float
    mode: str
    metric: str
    kind: str
    include_zero: bool
    groups: int

    @property
    def is_spread(self) -> bool:
        """Whether the score is a spread of rewards, which is often 0.

        A mean length is 0 only where nothing was sampled, a mean surprisal only where every token
        of a group was certain.
        """
        return self.metric.startswith("reward")

    @property
    def is_ranked(self) -> bool:
        """Whether a group may be dropped because others have a better score."""
        if self.strategy == "top_k_abs":
            return self.value < self.groups
        return self.strategy == "min_p" or self.value < 1.0

    @property
    def is_share_of_mass(self) -> bool:
        """Whether a share of the scores' sum is kept: groups that score 0 are no part of it."""
        return self.strategy == "top_p" and self.mode == "mass" and self.value < 1.0

    @property
    def drops_zeros(self) -> bool:
        """Whether a group may be dropped because its rewards are equal."""
        return self.is_spread and not self.include_zero

    @property
    def can_drop(self) -> bool:
        """Whether any group may be dropped."""
        return self.is_ranked or self.drops_zeros

    @property
    def looks_at_zeros(self) -> bool:
        """Whether `include_zero` decides anything, the other keys given.

        A share of the mass, best first, is full before the groups that score 0.
        """
        return self.is_spread and not (self.is_share_of_mass and self.kind == "largest")


def effect_of_flat(flat: Mapping[str, Any]) -> FilterEffect:
    """Return the effect of the filter of a flat config."""
    names = ("strategy", "value", "metric", "include_zero")
    return FilterEffect(
        **{name: flat[f"rollout_filter.{name}"] for name in names},
        mode=flat.get("rollout_filter.mode", ""),
        kind=flat["rollout_filter.type"],
        groups=flat["rollout.groups"],
    )


def effect_of(rollout_filter: "RolloutFilter", rollout: "RolloutConfig") -> FilterEffect:
    """Return the effect of the filter of two sections."""
    return FilterEffect(
        strategy=rollout_filter.strategy,
        value=rollout_filter.value,
        mode=rollout_filter.mode if rollout_filter.strategy == "top_p" else "",
        metric=rollout_filter.metric,
        kind=rollout_filter.type,
        include_zero=rollout_filter.include_zero,
        groups=rollout.groups,
    )
