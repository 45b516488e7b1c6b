"""Probe batches of S6: episodes of a fixed random stream, with everything that credit reads.

They have what real batches have: turns and rows of different length, groups without spread, groups
of which a fault left one episode or none, rewards of several scales, a verdict on each turn, and
the probability of a gold answer at each context.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rltune.comparability.reward_keys import pays_success
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.credit.judging import Flags
from rltune.types import Episode, StopReason, Turn

MOST_TURNS, MOST_TOKENS = 3, 4
KINDS = ("binary", "shaped", "wide", "narrow", "binary", "faulty", "faulty")
"""Rewards of the scenes; a reward that is a success is 0 or 1 in each of them."""

_STEP = 1 / 64  # rewards are multiples of it, which float32 adds up exactly


@dataclass(frozen=True, slots=True)
class Scene:
    """One probe batch."""

    number: int  # tells its random streams apart from those of other scenes
    # as if they had been played; the first token of an episode is its row
    episodes: tuple[Episode, ...]
    flags: tuple[Flags, ...]  # A verdict on each turn of each episode, in the order of the episodes
    # mean log-probability of the gold answer at each context, in nats
    gold_logp_NC: NDArray[np.float64]
    has_faults: bool  # whether a fault masks some episode


def make_scenes(config: TrialConfig, *, n_words: int) -> list[Scene]:
    """Return the probe batches of a config: its groups, its group size, rewards in its domain."""
    scenes = []
    for number, kind in enumerate(KINDS):
        rng = np.random.Generator(np.random.PCG64(1000 + number))
        scenes.append(_scene(config, number, kind, n_words, rng))
    return scenes


def _scene(
    config: TrialConfig, number: int, kind: str, n_words: int, rng: np.random.Generator
) -> Scene:
    groups, size = config.rollout.groups, config.rollout.group_size
    most = (
        min(MOST_TURNS, getattr(config.env, "max_turns", MOST_TURNS)),
        min(MOST_TOKENS, config.rollout.max_response_tokens),
    )
    success_GM, reward_GM = _outcomes(groups, size, kind, rng)
    reward_GM = _in_domain(config, success_GM, reward_GM)
    faulty_GM = _faults(groups, size) if kind == "faulty" else np.zeros((groups, size), np.bool_)
    episodes: list[Episode] = []
    for group in range(groups):
        for member in range(size):
            episode = _episode(
                (group, member),
                row=len(episodes),
                success=bool(success_GM[group, member]),
                reward=float(reward_GM[group, member]),
                spread=0.0 if _pays_at_the_end(config) else 1.0,
                most=most,
                n_words=n_words,
                rng=rng,
            )
            episodes.append(_spoiled(episode) if faulty_GM[group, member] else episode)
    flags: list[Flags] = [tuple(bool(x) for x in rng.random(len(e.turns)) < 0.5) for e in episodes]
    if len(flags) > 2:
        flags[2] = None  # an episode that was not judged
    gold = np.log(rng.uniform(0.02, 0.9, (len(episodes), MOST_TURNS)))
    gold[rng.random(gold.shape) < 0.05] = -np.inf  # dead ends
    return Scene(number, tuple(episodes), tuple(flags), gold, bool(faulty_GM.any()))


def _outcomes(
    groups: int, size: int, kind: str, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return successes and rewards, (G, M): the first groups fail and succeed as a whole."""
    rate_G1 = rng.uniform(0.1, 0.9, (groups, 1))
    if groups > 1:
        rate_G1[0] = 0.0
    if groups > 2:
        rate_G1[1] = 1.0
    success_GM = rng.random((groups, size)) < rate_G1
    if kind == "faulty":
        success_GM[:, -1] |= _is_left_alone(groups)  # what is left of a group earns something
    if kind == "shaped":  # ten for a solved level, a little less for each action
        lost_GM = 0.125 * rng.integers(0, 8, (groups, size))
        lost_GM[0] = lost_GM[0, 0]
        return success_GM, 10.0 * success_GM - lost_GM
    if kind in ("wide", "narrow"):
        middle, width = (1.0, 1.0) if kind == "wide" else (-0.7, 0.4)
        scale_G1 = np.exp(rng.normal(middle, width, (groups, 1)))
        return success_GM, rng.normal(0.0, 1.0, (groups, size)) * scale_G1
    return success_GM, success_GM.astype(np.float64)


def _in_domain(
    config: TrialConfig, success_GM: NDArray[np.bool_], reward_GM: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return rewards that the config can pay: successes alone, none negative, or any."""
    terms = config.reward.terms if config.reward is not None else ()
    paid = {term.score: term.weight for term in terms if term.weight}
    weight = paid[min(paid)] if paid else 1.0
    if _pays_at_the_end(config) and not paid.keys() - {"success"}:
        return weight * success_GM.astype(np.float64)
    if config.advantage.kind == "maxrl" and config.advantage.outcome == "reward":
        reward_GM = np.abs(reward_GM)
    return np.round(reward_GM / _STEP) * _STEP * weight


def _pays_at_the_end(config: TrialConfig) -> bool:
    """Return whether no turn before the last earns anything."""
    reward = config.reward
    if reward is None:
        return pays_success(config.env.kind, getattr(config.env, "format_penalty", 0.0))
    return reward.turn_rewards == "none" and not reward.format_penalty


def _faults(groups: int, size: int) -> NDArray[np.bool_]:
    """Return where a fault is: one in most groups, all but one of the last, all of one."""
    faulty_GM = np.zeros((groups, size), dtype=np.bool_)
    faulty_GM[1:, 0] = True
    faulty_GM[_is_left_alone(groups), : max(1, size - 1)] = True
    if groups > 3:
        faulty_GM[2] = True
    return faulty_GM


def _is_left_alone(groups: int) -> NDArray[np.bool_]:
    return np.arange(groups) >= groups - max(1, groups // 4)


def _episode(
    place: tuple[int, int],
    *,
    row: int,
    success: bool,
    reward: float,
    spread: float,
    most: tuple[int, int],
    n_words: int,
    rng: np.random.Generator,
) -> Episode:
    n_turns = int(rng.integers(1, most[0] + 1))
    shares = np.round(rng.normal(0.0, 0.25, n_turns) / _STEP) * _STEP
    shares[:-1] *= spread
    shares[-1] = reward - shares[:-1].sum()
    turns = []
    for index in range(n_turns):
        n_tokens = int(rng.integers(1, most[1] + 1))
        prompt = (row, 0) if index == 0 else (0,)
        sampled = tuple(int(word) for word in rng.integers(0, n_words, n_tokens))
        turns.append(_turn(prompt, sampled, float(shares[index])))
    return Episode(
        task_id=f"probe-{row}",
        task_seed=place[0],
        group=place[0],
        member=place[1],
        turns=tuple(turns),
        terminated=success,
        truncated=not success,
        success=success,
        reward=reward,
    )


def _turn(prompt: Sequence[int], sampled: Sequence[int], reward: float) -> Turn:
    return Turn(
        prompt_ids=tuple(prompt),
        sampled_ids=tuple(sampled),
        logprobs=(0.0,) * len(sampled),  # set where the policy is known
        stop_reason=StopReason.STOP,
        observation="",
        response="",
        actions=(),
        reward=reward,
        is_valid=True,
        n_invalid=0,
        n_over_limit=0,
    )


def _spoiled(episode: Episode) -> Episode:
    last = replace(episode.turns[-1], fault="probe: a verifier that is down")
    return replace(episode, turns=(*episode.turns[:-1], last))
