"""The reward section: null keeps the environment's own; else a rubric of named scores decides."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from rltune.spec.errors import Violation, refuse
from rltune.spec.schema.base import Section, tuple_from_list


class TermConfig(Section):
    """One score of a rubric."""

    score: str = Field(
        min_length=1,
        description="success, env_reward, valid_turns, a measure of the environment (em, f1), or "
        "the import path of a custom function: my_pkg.my_mod:score.",
    )
    weight: float = Field(1.0, description="Factor of the score in the reward (no unit).")

    @property
    def name(self) -> str:
        """Its name in records: the score's, or the function's."""
        return self.score.rpartition(":")[2]


class RewardConfig(Section):
    """A rubric: success is the first score's, the reward is the weighted sum of all."""

    terms: Annotated[tuple[TermConfig, ...], BeforeValidator(tuple_from_list)] = Field(
        description="Scores of a whole episode, each with a weight; the first decides success."
    )
    threshold: float = Field(
        1.0, description="First score from which on an episode is a success (the score's unit)."
    )
    turn_rewards: Literal["none", "env"] = Field(
        "none",
        description="Reward of the turns before the last: none, or the environment's own (env).",
    )
    format_penalty: float = Field(
        0.0,
        le=0.0,
        description="Reward added to each turn that could not be read, on top of the env's own.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(_violations([term.name for term in self.terms]))
        return self


def _violations(names: list[str]) -> list[Violation]:
    if not names:
        return [Violation("terms", "[] holds no score.", "Give at least one.")]
    action = "Remove the duplicate; two functions need different names."
    return [
        Violation("terms", f"{name!r} is given twice.", action)
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]


def long_reward(value: Any) -> Any:
    """Return the short form of a reward, one score, in full; anything else unchanged."""
    return {"terms": [{"score": value}]} if isinstance(value, str) else value
