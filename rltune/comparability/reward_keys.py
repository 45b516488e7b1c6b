"""What the keys of rewards come to (S6): which of them are read, and which rubrics are one.

A grid game in natural language tells the policy what its last turn earned: its penalty is read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rltune.comparability.knobs import shows_reward
from rltune.spec.estimators import GROUP_KINDS
from rltune.spec.filter_effect import effect_of_flat
from rltune.spec.identity import canonical_json

Flat = Mapping[str, Any]
"""A flat config."""

Terms = Sequence[Mapping[str, Any]]
"""`reward.terms`."""

REWARD_KEYS = tuple(
    f"reward{key}" for key in ("", ".terms", ".threshold", ".turn_rewards", ".format_penalty")
)
PENALTY = "env.format_penalty"
SUCCESS_ALONE: Terms = ({"score": "success", "weight": 1.0},)


def weights(terms: Terms) -> dict[str, float]:
    """Return score -> weight, of the scores that weigh anything, in alphabetical order."""
    found = {term["score"]: term["weight"] for term in terms if term["weight"]}
    return dict(sorted(found.items()))


def pays_success(kind: str, format_penalty: float) -> bool:
    """Return whether an environment's own reward is 1 for a success and 0 for all else."""
    return kind in ("frozen_lake", "multihop_qa") and format_penalty == 0


def paid_settings(flat: Flat) -> Iterator[tuple[str, str]]:
    """Yield dotted key -> what it and the other keys of rewards come to, as `inert.settings`."""
    success, unseen = _success(flat), () if shows_reward(flat) else (PENALTY,)
    if _reads_success_alone(flat):
        why = f"advantage.outcome is success and nothing reads a reward; a success is {success}"
        yield from ((key, why) for key in (*REWARD_KEYS, *unseen))
        return
    terms = flat.get("reward.terms")
    if terms is None and not pays_success(flat["env.kind"], flat.get(PENALTY, 0.0)):
        return
    terms = terms or SUCCESS_ALONE
    yield "reward.threshold", f"a success is {success}"
    sums = canonical_json(weights(terms))
    yield "reward.terms", f"the reward is {sums}, and a success goes by {terms[0]['score']}"
    own, penalty = flat.get("reward.turn_rewards", "none"), flat.get("reward.format_penalty", 0.0)
    turns = f"turns before the last earn {own}, and a malformed one {penalty!r}"
    yield from ((key, turns) for key in ("reward", "reward.turn_rewards", "reward.format_penalty"))
    if not _reads_env_reward(terms, own):
        why = "no score of the reward section reads the environment's own reward"
        yield from ((key, why) for key in unseen)


def _success(flat: Flat) -> str:
    """Return what decides success, in words that are equal where it is the same."""
    terms = flat.get("reward.terms")
    score, threshold = (terms[0]["score"], flat["reward.threshold"]) if terms else ("success", 1.0)
    if score == "success" and 0 < threshold <= 1:
        return "the environment's own"
    return f"{score} from {threshold!r} on"


def _reads_success_alone(flat: Flat) -> bool:
    """Return whether credit, filter and early stops see the success of an episode, and no reward.

    ADCA tells a judge the reward.
    """
    effect = effect_of_flat(flat)
    return (
        flat["advantage.kind"] in GROUP_KINDS
        and flat["advantage.outcome"] == "success"
        and flat["attribution.kind"] != "adca"
        and not (effect.is_spread and effect.can_drop)
        and flat["early_stop.reward_std_share"] is None
    )


def _reads_env_reward(terms: Terms, turn_rewards: str) -> bool:
    """Return whether a rubric may see what the environment pays; a score of a user's own may."""
    names = [term["score"] for term in terms]
    return turn_rewards == "env" or any(":" in name or name == "env_reward" for name in names)
