"""The attribution section: credit of single turns, and the judge that may be asked for it."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from rltune.spec.judge_names import checked_address, checked_variable
from rltune.spec.schema.base import (
    Fraction,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Section,
)


class NoAttributionConfig(Section):
    """Every turn of an episode gets the same credit."""

    kind: Literal["none"] = Field("none", description="Name of the attribution.")


DEFAULT_ADDRESS = "https://api.openai.com/v1"


class JudgeConfig(Section):
    """The service that `attribution.judge: llm` asks; any OpenAI-compatible endpoint."""

    model_config = ConfigDict(hide_input_in_errors=True)  # a key may stand in the wrong place

    base_url: Annotated[str, BeforeValidator(checked_address)] = Field(
        DEFAULT_ADDRESS, description="Address of the service; the environment has no say in it."
    )
    model: str = Field("gpt-4o-mini", min_length=1, description="Name of the model to ask.")
    api_key_env: Annotated[str, BeforeValidator(checked_variable)] = Field(
        "OPENAI_API_KEY",
        description="Environment variable with the key; the key itself is written nowhere.",
    )
    max_concurrency: PositiveInt = Field(5, description="Requests under way at once, in requests.")
    max_retries: Annotated[int, Field(ge=0)] = Field(
        5, description="Further tries of a request that failed, in tries."
    )
    timeout_s: PositiveFloat = Field(60.0, description="Limit of one request, in seconds.")
    deadline_s: PositiveFloat = Field(
        600.0, description="Limit of all requests of one training step, in seconds."
    )
    max_calls: PositiveInt = Field(
        2000,
        description="Most requests of a whole trial that reach the service, in requests; then no "
        "turn is judged. `rltune plan` says how many a trial needs.",
    )
    max_tokens: PositiveInt = Field(
        2_000_000,
        description="Most tokens of a whole trial, prompts included, in tokens; then likewise.",
    )
    max_reply_tokens: PositiveInt = Field(1024, description="Limit of one reply, in tokens.")
    temperature: NonNegativeFloat = Field(0.0, description="Sampling temperature of the judge.")


class AdcaConfig(Section):
    """ADCA (AgentEvolver): a judge calls each turn good or bad, beside the outcome."""

    kind: Literal["adca"] = Field("adca", description="Name of the attribution.")
    judge: Literal["solver", "gold", "llm"] = Field(
        "solver",
        description="Who judges a turn: the exact distance to go (solver), that or the gold "
        "answer's probability (gold), or a language model (llm).",
    )
    scheme: Literal["decouple", "allocation"] = Field(
        "decouple",
        description="Reward of a turn: +-fix_base, or a share of the outcome by flag.",
    )
    fusion: Literal["last_step", "all_steps"] = Field(
        "last_step", description="Which turns get the outcome added: the last, or all."
    )
    alpha: NonNegativeFloat = Field(
        0.1, description="Weight of the turns' z-scores beside the outcome (no unit)."
    )
    alpha_schedule: Literal["constant", "cosine"] = Field(
        "constant", description="How alpha moves: not at all, or by half a cosine to alpha_min."
    )
    alpha_min: NonNegativeFloat = Field(0.0, description="Where the cosine ends (no unit).")
    alpha_steps: PositiveInt = Field(100, description="Length of the cosine, in training steps.")
    fix_base: PositiveFloat = Field(
        0.2, description="Size of a turn's reward under decouple; cancels under normalize."
    )
    normalize: bool = Field(
        True, description="Whether turn rewards are z-scored over their prompt's episodes."
    )
    scope: Literal["trajectory", "flat"] = Field(
        "trajectory",
        description="What the z-score weighs alike: episodes (trajectory) or turns (flat).",
    )
    length_normalize: bool = Field(
        False, description="Whether an episode's credit is divided by sqrt(its turns)."
    )
    first_steps: PositiveInt | None = Field(
        None,
        description="Training steps with attribution; later none, and no judge is asked. Null: "
        "all.",
    )
    skip: Literal["none", "small_advantage", "all_negative"] = Field(
        "none",
        description="Episodes that are not judged: none, those whose outcome advantage is 0 (in a "
        "group without spread, all), or failures.",
    )
    llm: JudgeConfig = Field(
        default_factory=JudgeConfig, description="The judge of attribution.judge llm."
    )

    @property
    def has_weight(self) -> bool:
        """Whether verdicts have some weight in some step."""
        return self.alpha > 0 or (self.alpha_schedule == "cosine" and self.alpha_min > 0)

    @property
    def asks_llm(self) -> bool:
        """Whether a language model is ever asked: it judges, and verdicts have some weight."""
        return self.judge == "llm" and self.has_weight


class InfoGainConfig(Section):
    """Information gain (A2TGPO, IGPO): what a turn added to the gold answer's probability."""

    kind: Literal["info_gain"] = Field("info_gain", description="Name of the attribution.")
    mode: Literal["none", "joint", "separate", "turn-group", "turn-group-v1d"] = Field(
        "turn-group-v1d",
        description="What gains are normalised over: with the outcomes, all turns of a prompt, or "
        "each turn of a prompt; v1d also divides by sqrt(turns left). None: no gain is computed.",
    )
    ig_type: Literal["prob_diff", "log_prob_diff"] = Field(
        "prob_diff", description="Difference of probabilities, as in the paper, or of their logs."
    )
    ig_coef: NonNegativeFloat = Field(
        1.0, description="Weight of the gain beside the outcome (no unit); released recipe: 0.3."
    )
    gamma: Fraction = Field(1.0, description="Discount of later gains per turn (no unit).")


Attribution = NoAttributionConfig | AdcaConfig | InfoGainConfig


def long_attribution(value: Any) -> Any:
    """Return the short forms of an attribution section in full; anything else unchanged.

    null is none, a name is a kind.
    """
    if value is None:
        return {"kind": "none"}
    return {"kind": value} if isinstance(value, str) else value
