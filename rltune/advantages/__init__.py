"""Advantage estimators and what shapes them, one module each; all estimators on one screen.

They estimate; whitening is `rltune.maths.masked`.
"""

from collections.abc import Callable, Mapping

from torch import Tensor

from rltune.advantages.grpo import grpo, grpo_center
from rltune.advantages.maxrl import maxrl
from rltune.advantages.reinforce import reinforce_pp_baseline
from rltune.advantages.rloo import rloo

Estimator = Callable[..., Tensor]
"""`(outcome_N, group_N, **keywords) -> advantages_N`: one finite number per episode.

Outcomes are float32 and groups int64; a custom one may return any real format.
"""

ESTIMATORS: Mapping[str, Estimator] = {
    "grpo": grpo,
    "grpo_center": grpo_center,
    "rloo": rloo,
    "maxrl": maxrl,
    "reinforce_pp_baseline": reinforce_pp_baseline,
}
"""`advantage.kind` -> estimator of a whole episode; a custom one has the same form.

Estimators of single tokens (`gae`, `gae_bilevel`, `reinforce_pp`) need more than the outcomes.
"""
