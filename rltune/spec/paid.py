"""What the keys of rewards come to (S6): which of them are read, and which rubrics are one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rltune.spec.credit_checks import GROUP_KINDS
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


def weights(terms: Terms) -> dict[str, float]:
    """Return score -> weight, of the scores that weigh anything, in alphabetical order."""
    found = {term["score"]: term["weight"] for term in terms if term["weight"]}
    return dict(sorted(found.items()))


def paid_settings(flat: Flat) -> Iterator[tuple[str, str]]:
    """Yield dotted key -> what it and the other keys of rewards come to, as `inert.settings`."""
    success = _success(flat)
    if _reads_success_alone(flat):
        why = f"advantage.outcome is success and nothing reads a reward; a success is {success}"
        yield from ((key, why) for key in (*REWARD_KEYS, PENALTY))
        return
    terms = flat.get("reward.terms")
    if terms is None:
        return
    yield "reward.threshold", f"a success is {success}"
    sums = canonical_json(weights(terms))
    yield "reward.terms", f"the reward is {sums}, and a success goes by {terms[0]['score']}"
    if not _reads_env_reward(flat, terms):
        yield PENALTY, "no score of the reward section reads the environment's own reward"


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


def _reads_env_reward(flat: Flat, terms: Terms) -> bool:
    """Return whether a rubric may see what the environment pays; a score of a user's own may."""
    names = [term["score"] for term in terms]
    is_seen = any(":" in name or name == "env_reward" for name in names)
    return is_seen or flat["reward.turn_rewards"] == "env"
