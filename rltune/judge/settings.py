"""The settings of the judge: `attribution.llm` of a config, and what no config changes."""

from pydantic import Field

from rltune.spec.schema.attribution import JudgeConfig
from rltune.spec.schema.base import NonNegativeFloat, PositiveInt


class JudgeSettings(JudgeConfig):
    """Where the judge is, and how much may be asked of it.

    A value out of range is a ValueError; an address and a variable's name are not repeated in it,
    for a person may have put the key there.
    """

    backoff_s: NonNegativeFloat = Field(
        1.0,
        description="Longest wait before the second try, in seconds; it doubles with each. The "
        "wait is drawn from its upper half.",
    )
    max_backoff_s: NonNegativeFloat = Field(
        60.0,
        description="Longest wait before any try, in seconds, even if the service asks for more.",
    )
    max_chars: PositiveInt = Field(
        2000, description="Longest task, action and observation that is shown, in characters."
    )
    seed: int = Field(0, description="Of the draws of the waits.")
