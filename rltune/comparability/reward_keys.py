"""Which keys of rewards are read, and which rubrics mean the same (S6).

A grid game in natural language tells the policy what its last turn earned: its penalty is read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rltune.comparability.knobs import shows_reward
from rltune.spec.filter_effect import effect_of
from rltune.spec.identity import canonical_json
from rltune.spec.schema.reward import RewardConfig, TermConfig
from rltune.spec.schema.trial import TrialConfig

Terms = Sequence[Mapping[str, Any]]
"""`reward.terms`."""

REWARD_KEYS = tuple(
    f"reward{key}" for key in ("", ".terms", ".threshold", ".turn_rewards", ".format_penalty")
)
PENALTY = "env.format_penalty"
SUCCESS_ALONE = RewardConfig(terms=(TermConfig(score="success"),))


def weights(terms: Terms) -> dict[str, float]:
    """Return score -> weight, of the scores that weigh anything, in alphabetical order."""
    found = {term["score"]: term["weight"] for term in terms if term["weight"]}
    return dict(sorted(found.items()))


def pays_success(kind: str, format_penalty: float) -> bool:
    """Return whether an environment's own reward is 1 for a success and 0 for all else."""
    return kind in ("frozen_lake", "multihop_qa", "arithmetic") and format_penalty == 0


def paid_settings(config: TrialConfig) -> Iterator[tuple[str, str]]:
    """Yield dotted key -> what the keys of rewards come to, as `inactive_keys.settings`."""
    env, own = config.env, config.reward
    penalty = getattr(env, "format_penalty", 0.0)
    unseen = () if shows_reward(env.kind, env.prompt) else (PENALTY,)
    success = _success(own)
    if _reads_success_alone(config):
        why = f"advantage.outcome is success and nothing reads a reward; a success is {success}"
        yield from ((key, why) for key in (*REWARD_KEYS, *unseen))
        return
    if own is None and not pays_success(env.kind, penalty):
        return
    rubric = own or SUCCESS_ALONE
    yield "reward.threshold", f"a success is {success}"
    sums = canonical_json(weights([term.model_dump() for term in rubric.terms]))
    yield "reward.terms", f"the reward is {sums}, and a success goes by {rubric.terms[0].score}"
    turns = f"turns before the last earn {rubric.turn_rewards}, and a malformed one "
    turns += f"{rubric.format_penalty!r}"
    yield from ((key, turns) for key in ("reward", "reward.turn_rewards", "reward.format_penalty"))
    if not _reads_env_reward(rubric):
        why = "no score of the reward section reads the environment's own reward"
        yield from ((key, why) for key in unseen)


def _success(reward: RewardConfig | None) -> str:
    """Return what decides success, in words that are equal where it is the same."""
    score, threshold = (reward.terms[0].score, reward.threshold) if reward else ("success", 1.0)
    if score == "success" and 0 < threshold <= 1:
        return "the environment's own"
    return f"{score} from {threshold!r} on"


def _reads_success_alone(config: TrialConfig) -> bool:
    """Return whether credit, filter and early stops see the success of an episode, and no reward.

    ADCA tells a judge the reward.
    """
    effect = effect_of(config.rollout_filter, config.rollout)
    return (
        getattr(config.advantage, "outcome", "") == "success"
        and config.attribution.kind != "adca"
        and not (effect.is_spread and effect.can_drop)
        and config.early_stop.reward_std_share is None
    )


def _reads_env_reward(reward: RewardConfig) -> bool:
    """Return whether a rubric may see what the environment pays; a score of a user's own may."""
    names = [term.score for term in reward.terms]
    return reward.turn_rewards == "env" or any(":" in n or n == "env_reward" for n in names)
