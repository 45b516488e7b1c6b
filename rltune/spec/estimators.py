"""The advantage estimators on one screen: what each needs and what it gives.

Their keys are in `rltune.spec.schema.advantage`, their formulas in `rltune.advantages`.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EstimatorKind:
    """The traits of an estimator that checks and training go by."""

    needs_critic: bool = False  # whether it needs the values of a critic
    # Whether it compares an episode with the others of its group, and gives it one advantage. The
    # others estimate each token.
    is_grouped: bool = False
    # Whether its advantages are whitened over the sampled tokens of the batch. A group of equal
    # rewards gets no 0 then: its tokens are as far from the mean as any.
    is_whitened: bool = False


ESTIMATOR_KINDS: Mapping[str, EstimatorKind] = {
    "gae": EstimatorKind(needs_critic=True, is_whitened=True),
    "gae_bilevel": EstimatorKind(needs_critic=True, is_whitened=True),
    "grpo": EstimatorKind(is_grouped=True),
    "grpo_center": EstimatorKind(is_grouped=True),
    "rloo": EstimatorKind(is_grouped=True),
    "maxrl": EstimatorKind(is_grouped=True),
    "reinforce_pp": EstimatorKind(is_whitened=True),
    "reinforce_pp_baseline": EstimatorKind(is_grouped=True, is_whitened=True),
    "custom": EstimatorKind(is_grouped=True),
}
"""`advantage.kind` -> its traits."""

CRITIC_KINDS = tuple(name for name, kind in ESTIMATOR_KINDS.items() if kind.needs_critic)
"""Estimators that need a critic."""

WHITENED_KINDS = tuple(name for name, kind in ESTIMATOR_KINDS.items() if kind.is_whitened)
"""Estimators whose advantages are whitened over tokens."""

GROUP_KINDS = tuple(name for name, kind in ESTIMATOR_KINDS.items() if kind.is_grouped)
"""Estimators that give an episode one advantage, compared with its group."""

EPISODE_KINDS = tuple(name for name in GROUP_KINDS if name not in WHITENED_KINDS)
"""Those whose advantage is still one per episode when it reaches the tokens."""
