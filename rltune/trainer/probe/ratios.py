"""Policy moves of S6's probe: ratios around every bound that some condition has."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rltune.rollout.tokens import TokenBatch
from rltune.spec.schema.loss import PpoLoss
from rltune.spec.schema.rollout import RolloutCorrection
from rltune.spec.schema.trial import TrialConfig

FLOAT_NOISE = 5e-5
"""Log-ratio that two float32 passes over the same tokens may be apart, with room to spare."""

_SMALLEST, _LEAST_RATIO = 1e-4, 0.02
_REACH = 3.0  # a ratio goes to a third of a bound, and to three times of it


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds on ratios and weights, over all conditions."""

    above: tuple[float, ...]  # by how much a ratio may exceed 1
    below: tuple[float, ...]  # by how much it may fall below 1
    ratios: tuple[float, ...]  # bounds on a ratio itself; may be empty
    weights: tuple[float, ...]  # bounds on the weights of a rollout correction


def bounds_of(configs: Iterable[TrialConfig]) -> Bounds:
    """Return the bounds of some conditions."""
    every = list(configs)
    losses = [c.loss for c in every if c.loss.kind != "reinforce"] or [PpoLoss()]
    weights = {bound for config in every for bound in _weights(config.rollout_correction)}
    return Bounds(
        tuple(sorted({max(loss.clip_high, _SMALLEST) for loss in losses})),
        tuple(sorted({max(loss.clip_low, _SMALLEST) for loss in losses})),
        tuple(sorted({x.dual_clip for x in losses if x.kind == "ppo" and x.dual_clip is not None})),
        tuple(sorted(weights - {0.0} or {1.0})),
    )


def _weights(correction: RolloutCorrection) -> tuple[float, ...]:
    """Return the bounds of a correction's weights."""
    if correction.kind == "tis":
        return (correction.cap,)
    return (correction.band_low, correction.band_high) if correction.kind == "icepop" else ()


def log_ratios(batch: TokenBatch, bounds: Bounds, seed: int) -> Tensor:
    """Return a log-ratio for each token, (N, T): one for a row, for a turn, or for a token.

    A loss that clips the ratio of an episode or of a turn is tried around its bounds as well. A
    quarter of the rows stays well inside, so that nothing hides behind a clip.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    shape = (batch.ids_NT.shape[0], batch.ids_NT.shape[1])
    of_row_N1 = _draw(bounds, (shape[0], 1), rng)
    turn_NT = np.maximum(batch.turn_ids_NT.numpy(), 0)
    of_turn_NK = _draw(bounds, (shape[0], int(turn_NT.max()) + 1), rng)
    of_turn_NT = np.take_along_axis(of_turn_NK, turn_NT, axis=1)
    of_token_NT = _draw(bounds, shape, rng)
    inside_NT = rng.uniform(-0.3, 0.3, shape) * min(*bounds.above, *bounds.below)
    kind_N1 = rng.integers(0, 4, (shape[0], 1))
    moved = [np.broadcast_to(of_row_N1, shape), of_turn_NT, of_token_NT, inside_NT]
    return torch.from_numpy(np.choose(np.broadcast_to(kind_N1, shape), moved))


def _draw(bounds: Bounds, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float64]:
    reach = _reach(shape, rng)
    sides = [
        1 + reach * rng.choice(bounds.above, shape),
        np.maximum(1 - reach * rng.choice(bounds.below, shape), _LEAST_RATIO),
    ]
    if bounds.ratios:
        sides.append(reach * rng.choice(bounds.ratios, shape))
    return np.asarray(np.log(np.choose(rng.integers(0, len(sides), shape), sides)))


def _reach(shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float64]:
    return np.asarray(np.exp(rng.uniform(-1.0, 1.0, shape) * np.log(_REACH)))


def log_weights(batch: TokenBatch, bounds: Bounds, seed: int) -> NDArray[np.float64]:
    """Return by how much trainer and engine differ in the logprob of each token, (N, T)."""
    rng = np.random.Generator(np.random.PCG64(seed))
    shape = (batch.ids_NT.shape[0], batch.ids_NT.shape[1])
    return np.asarray(np.log(_reach(shape, rng) * rng.choice(bounds.weights, shape)))


def float_noise(batch: TokenBatch, seed: int) -> NDArray[np.float64]:
    """Return log-ratios as rounding makes them, (N, T)."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return np.asarray(rng.uniform(-FLOAT_NOISE, FLOAT_NOISE, batch.ids_NT.shape))
