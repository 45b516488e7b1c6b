"""Old logprobs that the first optimiser step itself gives: where `plan_scoring` leaves them."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from rltune.trainer.batches.mini_batches import MiniBatchPlan
from rltune.trainer.ranks.group import Group
from rltune.trainer.train_state import Signals


def require_known(signals: Signals, plan: Sequence[MiniBatchPlan]) -> None:
    """Refuse rows without old logprobs of which the first step's policy would not be the sampler.

    Raises:
        ValueError: A row is pending outside the first optimiser step.

    """
    if signals.is_pending_N is not None:
        later = signals.is_pending_N.clone()
        later[plan[0].rows] = False
        if later.any():
            raise ValueError(f"{int(later.sum())} rows of later optimiser steps are not scored")


def known(signals: Signals, logp_BT: Tensor) -> Signals:
    """Return signals in which pending rows have the logprobs of this pass: their ratio is 1.

    Args:
        signals: Of the rows of a micro-batch.
        logp_BT: Logprobs that the update computes for them, 0 outside the action mask.

    """
    if signals.is_pending_N is None:
        return signals
    old_logp_BT = logp_BT.detach().where(signals.is_pending_N[:, None], signals.old_logp_NT)
    return replace(signals, old_logp_NT=old_logp_BT)


def record(signals: Signals, rows: Tensor, logp_BT: Tensor) -> None:
    """Fill in, in place, the old logprobs of those rows that were pending, for passes to come.

    Args:
        signals: Of the whole batch.
        rows: Indices of the rows of a micro-batch, (B,).
        logp_BT: What the update computed for them.

    """
    if signals.is_pending_N is None:
        return
    index = signals.is_pending_N[rows].nonzero()[:, 0]
    signals.old_logp_NT[rows[index], : logp_BT.shape[1]] = logp_BT[index]
    signals.is_pending_N[rows] = False


def exchange(signals: Signals, mini_batch: MiniBatchPlan, group: Group) -> None:
    """Fill in, in place, the old logprobs that the other ranks recorded in the first step.

    Args:
        signals: Of the whole batch.
        mini_batch: The optimiser step that was made.
        group: The ranks.

    """
    is_first = (mini_batch.epoch, mini_batch.nth) == (0, 0)
    if group.size == 1 or signals.is_pending_N is None or not is_first:
        return
    rows = mini_batch.rows
    known_RT = signals.old_logp_NT[rows]
    known_RT[signals.is_pending_N[rows]] = 0.0  # another rank has them
    signals.old_logp_NT[rows] = group.sum(known_RT)
    signals.is_pending_N[rows] = False
