"""The settings of the judge, by the names of the section `attribution.llm` where it has them."""

import math
from dataclasses import dataclass

from rltune.spec.judge_names import address_fault, is_variable
from rltune.spec.schema.attribution import DEFAULT_ADDRESS


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """Where the judge is, and how much may be asked of it.

    Args:
        base_url: Address of the service, such as `http://127.0.0.1:8000/v1`.
        model: Name of the model.
        api_key_env: Name of the environment variable with the key.
        max_concurrency: Requests under way at once.
        max_retries: Further tries of a request after a failure that may pass.
        timeout_s: Seconds until a request is given up, to the last byte; half of them to connect.
        deadline_s: Seconds for all requests of one `judge`.
        max_calls: Most requests of a whole trial that reach the service, further tries included.
        max_tokens: Most tokens of a whole trial, prompts included.
        max_reply_tokens: Limit of one reply, in tokens.
        temperature: Sampling temperature.
        backoff_s: Longest wait before the second try; it doubles with each. The wait is drawn from
            its upper half.
        max_backoff_s: Longest wait before any try, also where the service asks for more.
        max_chars: Longest task, action and observation that is shown, in characters.
        seed: Of the draws of the waits.

    Raises:
        ValueError: A number is out of its range, or the address or the variable's name cannot be
            used; these two are not repeated, for a person may have put the key there.

    """

    base_url: str = DEFAULT_ADDRESS
    model: str = "gpt-4o-mini"
    api_key_env: str = "OPENAI_API_KEY"
    max_concurrency: int = 5
    max_retries: int = 5
    timeout_s: float = 60.0
    deadline_s: float = 600.0
    max_calls: int = 2000
    max_tokens: int = 2_000_000
    max_reply_tokens: int = 1024
    temperature: float = 0.0
    backoff_s: float = 1.0
    max_backoff_s: float = 60.0
    max_chars: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        if fault := address_fault(self.base_url):
            raise ValueError(f"base_url is not the address of a service: {fault}.")
        if not is_variable(self.api_key_env):
            raise ValueError(
                "api_key_env is not the name of an environment variable; give the name."
            )
        for name in ("max_concurrency", "max_calls", "max_tokens", "max_reply_tokens", "max_chars"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be 1 or more.")
        for name in ("timeout_s", "deadline_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be above 0 seconds.")
        for name in ("max_retries", "temperature", "backoff_s", "max_backoff_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be 0 or more.")
