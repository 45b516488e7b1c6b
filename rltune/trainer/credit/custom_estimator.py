"""Call a custom advantage estimator by its import path, and check what it returns."""

from copy import deepcopy

import torch
from torch import Tensor

from rltune.errors import TrialError
from rltune.spec.schema.advantage import CustomAdvantageConfig
from rltune_envs.errors import CustomCodeError
from rltune_envs.guard import call, limit_of
from rltune_envs.imports import load_object


def custom_advantages(config: CustomAdvantageConfig, outcome_N: Tensor, group_N: Tensor) -> Tensor:
    """Return the advantages, (N,) in float32, that a user's estimator gives to episodes.

    Numbers of another format are cast.

    Args:
        config: Names the estimator and its arguments.
        outcome_N: What the episodes are compared by.
        group_N: Group of each.

    Raises:
        TrialError: It raised something, did not return in time, or returned something else than
            one finite number per episode.

    """
    estimator = load_object(config.estimator)
    try:
        found = call(
            f"advantage.estimator {config.estimator!r}",
            lambda: estimator(outcome_N, group_N, **deepcopy(config.arguments)),
            limit_s=limit_of(estimator),
            module=config.estimator.partition(":")[0],
        )
    except (CustomCodeError, NotImplementedError) as error:
        raise TrialError(f"{error}") from error
    wrong = _complaint(found, len(outcome_N))
    if wrong or not isinstance(found, Tensor):
        raise TrialError(
            f"advantage.estimator {config.estimator!r} returned {wrong}. It must return a torch "
            f"tensor of shape ({len(outcome_N)},): one finite number per episode that it was given."
        )
    return found.detach().to(outcome_N.device, torch.float32)


def _complaint(found: object, n: int) -> str:
    """Return what is wrong with a result; empty when nothing is."""
    if not isinstance(found, Tensor):
        return f"a {type(found).__name__}, {found!r:.80}"
    if found.is_complex() or found.dtype is torch.bool:
        return f"numbers of type {found.dtype}"
    if found.shape != (n,):
        return f"a tensor of shape {tuple(found.shape)}"
    bad = (~found.detach().to(torch.float32).isfinite()).nonzero()[:, 0].tolist()
    if bad:
        return f"{found[bad[0]].item()} for episode {bad[0]} ({len(bad)} of {n} are not finite)"
    return ""
