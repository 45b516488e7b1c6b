"""The settings of a service that is asked: those of a config, what no config changes, the key."""

import importlib.util
import os

from pydantic import Field

from rltune.errors import InputError, Problem
from rltune.spec.schema.attribution import JudgeConfig
from rltune.spec.schema.base import NonNegativeFloat, PositiveInt


class JudgeSettings(JudgeConfig):
    """Where the service is, and how much may be asked of it.

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
    section: str = Field("attribution.llm", description="Where they stand, for messages.")

    def require_ready(self) -> None:
        """Raise unless the client is installed and the key is set: before anything starts.

        Raises:
            InputError: One of them is missing.

        """
        if importlib.util.find_spec("openai") is None:
            what = "the judge needs the openai package, which is not installed."
            action = "Run `pip install 'rltune[judge]'`, or choose another attribution.judge."
            if self.section != "attribution.llm":
                what = "it needs the openai package, which is not installed."
                action = "Run `pip install 'rltune[judge]'`."
            raise InputError(Problem(self.section, what, action=action))
        self.key()

    def key(self) -> str:
        """Return the key, read from the environment.

        Raises:
            InputError: It is not set, or no key at all. The message never holds it.

        """
        key = os.environ.get(self.api_key_env, "").strip()
        where = f"{self.section}.api_key_env"
        if not key:
            what = f"the environment variable {self.api_key_env!r} is not set."
            action = "Set it to the key, or to any text for a service that needs none."
            raise InputError(Problem(where, what, action=action))
        if not (key.isascii() and key.isprintable()) or " " in key:
            what = f"the environment variable {self.api_key_env!r} holds no key: it has spaces or "
            what += "characters that no key contains."
            raise InputError(Problem(where, what, action="Set it to the key alone."))
        return key
