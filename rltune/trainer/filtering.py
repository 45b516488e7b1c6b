"""The choice of the groups to train on, and the batch without the others."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from rltune.rollout.filter import SPREADS, group_scores, loss_scale, select_groups
from rltune.rollout.tokens import TokenBatch
from rltune.spec.schema.rollout import RolloutFilter


@dataclass(frozen=True, slots=True)
class FilterResult:
    """The groups that are trained on.

    A group without a single valid row is no candidate: it is neither kept nor dropped.
    """

    keep_N: np.ndarray  # rows to train on: the valid rows of the groups that were kept
    drop_N: np.ndarray  # rows of the groups that were dropped
    scores_G: np.ndarray  # score of each group, over its valid rows; 0 where fewer than two are
    kept_ratio: float  # share of the candidates that were kept; 1 without any
    zero_count: int  # candidates whose score is zero
    scale: float  # factor on the advantages

    @property
    def is_empty(self) -> bool:
        """Whether the filter dropped all that there was to train on."""
        return bool(self.drop_N.any()) and not self.keep_N.any()


def filter_groups(
    batch: TokenBatch, *, groups: int, config: RolloutFilter, zero_tol: float = 1e-10
) -> FilterResult:
    """Choose the groups to train on; rows come group by group, all groups of one size.

    The batch is on the CPU.
    """
    is_valid_N = batch.is_valid_N.numpy()
    valid_GM = is_valid_N.reshape(groups, -1)
    scores_G = _scores(_values(batch, config.metric).reshape(groups, -1), valid_GM, config)
    is_candidate_G = valid_GM.any(axis=1)
    keep_G = np.zeros(groups, dtype=np.bool_)
    keep_G[is_candidate_G] = select_groups(
        scores_G[is_candidate_G],
        strategy=config.strategy,
        value=config.value,
        mode=config.mode if config.strategy == "top_p" else "softmax",
        kind=config.type,
        include_zero=config.include_zero,
    )
    candidates = int(is_candidate_G.sum())
    ratio = float(keep_G.sum() / candidates) if candidates else 1.0
    size = valid_GM.shape[1]
    return FilterResult(
        keep_N=np.repeat(keep_G, size) & is_valid_N,
        drop_N=np.repeat(is_candidate_G & ~keep_G, size),
        scores_G=scores_G,
        kept_ratio=ratio,
        zero_count=int((np.abs(scores_G[is_candidate_G]) <= zero_tol).sum()),
        scale=loss_scale(ratio, config.loss_scaling),
    )


def _values(batch: TokenBatch, metric: str) -> np.ndarray:
    """Return what a filter metric is about, one number an episode.

    `entropy` is the mean surprisal of an episode's tokens, which is its expectation: RAGEN-2 takes
    the entropy of the vocabulary, at the price of a forward pass over groups that are then dropped.
    """
    counts_N = batch.action_mask_NT.numpy().sum(axis=1)
    if metric == "length":
        return np.asarray(counts_N, dtype=np.float64)
    if metric == "entropy":
        surprisal_N = -batch.rollout_logprobs_NT.numpy().astype(np.float64).sum(axis=1)
        return np.asarray(surprisal_N / np.maximum(counts_N, 1), dtype=np.float64)
    return batch.rewards_N.numpy().astype(np.float64)


def _scores(values_GM: np.ndarray, valid_GM: np.ndarray, config: RolloutFilter) -> np.ndarray:
    """Return the score of each group, over its valid rows.

    A group of one has no spread; the schema allows it by config only where the filter is off.
    """
    scores_G = np.zeros(len(values_GM))
    least = 2 if config.metric in SPREADS else 1
    for group, (values_M, valid_M) in enumerate(zip(values_GM, valid_GM, strict=True)):
        if valid_M.sum() >= least:
            of_valid = values_M[None, valid_M]
            scores_G[group] = group_scores(of_valid, metric=config.metric, ddof=config.ddof)[0]
    return scores_G


def apply_filter(batch: TokenBatch, chosen: FilterResult, *, on_drop: str) -> TokenBatch:
    """Take the rows that are not trained on out of training.

    `drop` removes those of dropped groups, which can change the number of optimiser steps. `mask`
    leaves them in place with nothing to train on, so that every condition makes the same number of
    steps. Rows with a fault stay in any case: the number must not depend on a service that is down.
    """
    if chosen.keep_N.all():
        return batch
    keep_N1 = torch.from_numpy(chosen.keep_N)[:, None]
    masked = replace(batch, action_mask_NT=batch.action_mask_NT & keep_N1)
    if on_drop != "drop":
        return masked
    return masked.rows(torch.from_numpy(np.flatnonzero(~chosen.drop_N)))
