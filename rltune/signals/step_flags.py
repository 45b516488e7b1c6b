"""GOOD and BAD flags of single turns from what can be measured, and which episodes to judge.

`rltune.advantages.adca` turns flags into credit. A flag is a boolean, True for GOOD. An episode
with a measure missing has no flags at all, None: it is not judged, and nobody guesses.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rltune.maths.checks import require_mask, require_same_shape
from rltune.types import Distance
from rltune_envs.choices import require_choice

SKIPS = ("none", "small_advantage", "all_negative")


def solver_flags(distances_K: Sequence[Distance | None]) -> tuple[bool, ...] | None:
    """Return a flag per turn: GOOD when the exact distance to go fell; None when not measured.

    A turn after which no solution is left is BAD, and so is every later one: nothing can fall any
    more. A turn that leaves the distance as it was is BAD.

    Args:
        distances_K: Distance to go around each turn; None where it was not measured.

    """
    flags = []
    for distance in distances_K:
        if distance is None:
            return None
        flags.append(_fell(distance))
    return tuple(flags)


def gold_flags(
    info_gains_K: Sequence[float | None],
    distances_K: Sequence[Distance | None],
    *,
    is_success: bool,
    min_info_gain: float = 0.0,
) -> tuple[bool, ...] | None:
    """Return a flag per turn: GOOD when it raised the gold answer's probability or came nearer.

    A turn is GOOD when its information gain is above `min_info_gain` or its distance to go fell (it
    fetched a supporting passage). The last turn has no gain: it is GOOD on success, or when its
    distance fell in an episode that a limit cut off. An answer that is wrong is BAD.

    Args:
        info_gains_K: Information gain of each turn; None or NaN where there is none. The last is
            not read.
        distances_K: Distance to go around each turn; None where it was not measured.
        is_success: Whether the episode is a success, by the one threshold of its reward.
        min_info_gain: A gain must be above this; probabilities or their logs, as the gains are.

    Returns:
        None when a turn before the last has neither a gain nor a distance.

    Raises:
        ValueError: The two lengths differ.

    """
    if len(info_gains_K) != len(distances_K):
        raise ValueError(
            f"{len(info_gains_K)} gains and {len(distances_K)} distances were given; expected one "
            "of each per turn, None where there is none."
        )
    flags = []
    for gain, distance in list(zip(info_gains_K, distances_K, strict=True))[:-1]:
        has_gain = gain is not None and not math.isnan(gain)
        if not has_gain and distance is None:
            return None
        is_gain = has_gain and gain is not None and gain > min_info_gain
        flags.append(is_gain or (distance is not None and _fell(distance)))
    if distances_K:
        last = distances_K[-1]
        flags.append(is_success or (last is not None and _fell(last)))
    return tuple(flags)


def _fell(distance: Distance) -> bool:
    """Return whether a distance fell; one that is None has no solution left."""
    if distance.before is None or distance.after is None:
        return False
    return distance.after < distance.before


def stack_flags(flags_N: Sequence[Sequence[bool] | None], *, n_turns: int) -> tuple[Tensor, Tensor]:
    """Return flags as a matrix, (N, K) int8, and whether each episode was judged, (N,) bool.

    1 is GOOD and 0 is BAD; -1 stands where there is no flag, so that `adca` refuses a judged
    episode with too few of them.

    Args:
        flags_N: Flags of each episode's turns, None for an episode that was not judged.
        n_turns: K, the number of columns.

    Raises:
        ValueError: An episode has more flags than there are columns.

    """
    matrix_NK = torch.full((len(flags_N), n_turns), -1, dtype=torch.int8)
    for row, flags in enumerate(flags_N):
        if flags is None:
            continue
        if len(flags) > n_turns:
            raise ValueError(
                f"episode {row} has {len(flags)} flags and n_turns is {n_turns}; give one flag per "
                "turn, and the largest number of turns in the batch."
            )
        matrix_NK[row, : len(flags)] = torch.tensor([int(flag) for flag in flags])
    is_judged = [flags is not None for flags in flags_N]
    return matrix_NK, torch.tensor(is_judged, dtype=torch.bool)


def rows_to_judge(
    advantages_N: Tensor, is_success_N: Tensor, *, skip: str, min_advantage: float = 1e-8
) -> Tensor:
    """Return which episodes a judge is asked about, (N,) boolean.

    - `none`: all of them
    - `small_advantage`: those whose outcome advantage is at least `min_advantage` in size; a group
      without outcome spread is not judged, and what its flags would teach is lost
    - `all_negative`: successes only

    Differs from AgentEvolver: success is the one flag that rewards and metrics go by (the original
    asks for a reward above 0 here and above 0.5 elsewhere), and an episode that is skipped has no
    flags, where the original calls all its turns GOOD on success and BAD on failure.

    Args:
        advantages_N: Outcome advantage of each episode.
        is_success_N: Whether an episode is a success.
        skip: `none`, `small_advantage` or `all_negative`.
        min_advantage: Smallest size of an advantage that is judged.

    Raises:
        ValueError: Shapes differ, the rule is unknown or `is_success_N` is not boolean.

    """
    require_choice("skip", skip, SKIPS)
    require_mask(is_success_N, name="is_success_N")
    require_same_shape(ndim=1, advantages_N=advantages_N, is_success_N=is_success_N)
    if skip == "small_advantage":
        return advantages_N.abs() >= min_advantage
    return is_success_N if skip == "all_negative" else torch.ones_like(is_success_N)
