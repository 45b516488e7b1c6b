"""Selection of the groups to train on, by a score of each. Numpy, no torch.

Within groups, equal rewards are advantages of 0. The filter (RAGEN-2, arXiv 2604.06268) keeps the
groups that spread most. Whole groups are kept or dropped.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from rltune_envs.choices import require_choice

Floats = npt.NDArray[np.float64]
Keep = npt.NDArray[np.bool_]


# `reward_variance` is a standard deviation: the literature's name, kept so that numbers compare.
# `reward_variance_mass` is the variance itself.
SPREADS: dict[str, Callable[..., Floats]] = {
    "reward_variance": np.std,
    "reward_variance_mass": np.var,
}
METRICS = (*SPREADS, "entropy", "length")
STRATEGIES = ("top_p", "top_k", "top_k_abs", "min_p")
MODES = ("softmax", "mass")
KINDS = ("largest", "smallest")
_SCALINGS: dict[str, Callable[[float], float]] = {
    "none": lambda _: 1.0,
    "linear": lambda r: r,
    "sqrt": math.sqrt,
}


def group_scores(values_GM: npt.ArrayLike, *, metric: str, ddof: int = 1) -> Floats:
    """Return the score of each group.

    reward_variance       std_g = sqrt(sum_m (R - mean_g)^2 / (M - ddof))
    reward_variance_mass  std_g^2; with `select_groups(mode="mass")` the share of variance
    entropy, length       mean_g of what the episodes have of it

    Args:
        values_GM: What the metric is about, a row per group: rewards, mean surprisals, lengths.
        metric: One of `METRICS`.
        ddof: 1 for the sample, 0 for the population spread; unused by a mean.

    Raises:
        ValueError: The metric is unknown, a value is not finite, or there is no spread because the
            groups have one member.

    """
    values = np.asarray(values_GM, dtype=np.float64)
    require_choice("metric", metric, METRICS)
    if values.ndim != 2:
        raise ValueError(f"values_GM has shape {values.shape}; expected (groups, members).")
    if ddof not in (0, 1):
        raise ValueError(f"ddof is {ddof!r}; choose 0 (population) or 1 (sample).")
    if metric in SPREADS and values.shape[1] < 2:
        raise ValueError(
            f"the rollout filter needs at least 2 rollouts per group, got {values.shape[1]}: one "
            "reward has no spread. Raise rollout.group_size, or switch the filter off with "
            "rollout_filter.value: 1.0 and rollout_filter.include_zero: true."
        )
    if not np.isfinite(values).all():
        group, member = np.argwhere(~np.isfinite(values))[0]
        raise ValueError(
            f"{metric}: {values[group, member]} of group {group}, member {member} is not finite; "
            "check the env or verifier."
        )
    if metric not in SPREADS:
        return np.asarray(values.mean(axis=1))
    scores = SPREADS[metric](values, axis=1, ddof=ddof)
    # Equal rewards have no spread, whatever the rounding of their mean says.
    return np.where(values.min(axis=1) == values.max(axis=1), 0.0, scores)


def select_groups(
    scores_G: npt.ArrayLike,
    *,
    strategy: str,
    value: float,
    mode: str,
    kind: str,
    include_zero: bool,
    eps: float = 0.005,
    zero_tol: float = 1e-10,
) -> Keep:
    """Return which groups are kept; all False is an outcome, not an error.

    Groups are sorted by score (ties keep their order) and a prefix of the list is kept:

    top_p softmax  smallest prefix with cumulative softmax(+-s) >= value, at least one group
    top_p mass     smallest prefix with cumulative s / sum(s) >= value - eps, at least one group;
                   none when every score is 0
    top_k          floor(value G) groups, G before zeros are dropped, at least one
    top_k_abs      value groups
    min_p          largest: s >= value max(s); smallest: s <= min(s) / value

    value 1.0 keeps every candidate, so with include_zero it switches top_p and top_k off.

    softmax weighs by the absolute score: rewards times ten select differently. mass does not.
    Differs from RAGEN-2, whose `linear` mode subtracts 0.01 from value * sum(s), in reward units,
    so that it too depends on the reward scale, if little. `eps` is a share instead; the published
    kept counts come out for eps in [0.0016, 0.0085].

    Args:
        scores_G: Score of each group, >= 0.
        strategy: One of `STRATEGIES`.
        value: The strategy's number: a share in (0, 1], or a count for top_k_abs.
        mode: How top_p weighs groups: `softmax` or `mass`. The other strategies ignore it.
        kind: `largest` keeps the highest scores, `smallest` the lowest.
        include_zero: Whether groups with score <= zero_tol are candidates.
        eps: Slack of mass, as a share of the sum.
        zero_tol: What counts as zero.

    Raises:
        ValueError: An unknown name, a number out of range, or a score that is no spread.

    """
    scores = np.asarray(scores_G, dtype=np.float64)
    _check_selection(scores, strategy=strategy, value=value, mode=mode, kind=kind)
    keep = np.zeros(scores.shape, dtype=np.bool_)
    candidates = np.flatnonzero((scores > zero_tol) | include_zero)
    if candidates.size == 0:
        return keep
    sign = 1.0 if kind == "largest" else -1.0
    order = candidates[np.argsort(-sign * scores[candidates], kind="stable")]
    ranked = scores[order]
    if strategy == "top_p" and value >= 1:
        count = len(ranked)
    elif strategy == "top_p" and mode == "softmax":
        count = _softmax_prefix(sign * ranked, value)
    elif strategy == "top_p":
        count = _mass_prefix(ranked, value, eps)
    elif strategy == "min_p":
        count = _within_factor(ranked, value, kind=kind, tol=zero_tol)
    else:
        count = _count(value, len(scores), strategy=strategy)
    keep[order[:count]] = True
    return keep


def loss_scale(kept_ratio: float, kind: str) -> float:
    """Return what a filtered step's advantages are multiplied by: 1, r or sqrt(r).

    r is the kept share of groups, in [0, 1].
    """
    require_choice("loss_scaling", kind, _SCALINGS)
    if not 0 <= kept_ratio <= 1:
        raise ValueError(f"kept_ratio is {kept_ratio!r}; it must lie in [0, 1].")
    return _SCALINGS[kind](kept_ratio)


def _prefix(weights: Floats, threshold: float) -> int:
    """Return the length of the smallest prefix whose sum reaches the threshold, at least 1."""
    return int(np.searchsorted(np.cumsum(weights), threshold, side="left")) + 1


def _softmax_prefix(ranked: Floats, value: float) -> int:
    weights = np.exp(ranked - ranked.max())
    return _prefix(weights / weights.sum(), value)


def _mass_prefix(ranked: Floats, value: float, eps: float) -> int:
    total = ranked.sum()
    return _prefix(ranked / total, value - eps) if total > 0 else 0


def _within_factor(ranked: Floats, value: float, *, kind: str, tol: float) -> int:
    if kind == "largest":
        return int(np.count_nonzero(ranked >= value * ranked[0] - tol))
    return int(np.count_nonzero(ranked <= ranked[0] / value + tol))


def _count(value: float, n_groups: int, *, strategy: str) -> int:
    # 0.29 * 100 is 28.999999999999996.
    return int(value) if strategy == "top_k_abs" else max(1, math.floor(value * n_groups + 1e-9))


def _check_selection(scores: Floats, *, strategy: str, value: float, mode: str, kind: str) -> None:
    require_choice("strategy", strategy, STRATEGIES)
    require_choice("mode", mode, MODES)
    require_choice("kind", kind, KINDS)
    if scores.ndim != 1:
        raise ValueError(f"scores_G has shape {scores.shape}; expected one score per group.")
    if strategy == "top_k_abs" and not (value >= 1 and float(value).is_integer()):
        raise ValueError(
            f"value is {value!r}; top_k_abs needs a whole number of groups, 1 or more."
        )
    if strategy != "top_k_abs" and not 0 < value <= 1:
        raise ValueError(f"value is {value!r}; {strategy} needs a share in (0, 1].")
    is_spread = np.isfinite(scores) & (scores >= 0)
    if not is_spread.all():
        group = int(np.flatnonzero(~is_spread)[0])
        raise ValueError(
            f"score {scores[group]} of group {group} is not a spread; it must be finite and >= 0. "
            "NaN means a group of one rollout: raise rollout.group_size."
        )
