"""The advantage section: the estimator, and the weights of single tokens that follow it."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from rltune.spec.credit_checks import shaping_violations
from rltune.spec.errors import refuse
from rltune.spec.schema.base import (
    Fraction,
    FreeMapping,
    ImportPath,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Section,
    tuple_from_list,
)


class SepaConfig(Section):
    """SEPA: pool the signal of execution tokens, so that planning tokens stand out."""

    schedule: Literal["none", "linear", "auto"] = Field(
        "none",
        description="How the pooling strength grows: not at all, with the steps, or with the fall "
        "of the execution tokens' variance (never below linear).",
    )
    steps: PositiveInt = Field(100, description="Length of the linear ramp, in optimiser steps.")
    delay: Annotated[int, Field(ge=0)] = Field(
        10, description="Wait before the ramp, in optimiser steps."
    )
    gate: Fraction = Field(
        0.0, description="Success rate from which on there is any pooling; it stays open (share)."
    )
    ema_decay: Fraction = Field(
        0.99, description="Decay of the variance's average, per training step."
    )
    warmup: PositiveInt = Field(
        50, description="Wait until the variance to compare with is fixed, in optimiser steps."
    )
    var_threshold: PositiveFloat = Field(
        0.2, description="Share of that variance below which auto starts to pool (no unit)."
    )


class ShapingConfig(Section):
    """Weights of the tokens of an episode, in the order SEPA, GTPO, HICRA; off by default."""

    signal: Literal["surprisal", "entropy"] = Field(
        "surprisal",
        description="What SEPA and GTPO look at: -log p of the sampled token, or the entropy over "
        "the vocabulary, in nats.",
    )
    scope: Literal["completion", "batch"] = Field(
        "completion", description="What means are taken over: one episode's tokens, or the batch's."
    )
    sepa: SepaConfig = Field(default_factory=SepaConfig, description="Pooling before GTPO.")
    gtpo_beta: NonNegativeFloat = Field(
        0.0, description="GTPO: weight of a token's signal in its advantage; 0 is off (no unit)."
    )
    hicra_alpha: Fraction = Field(
        0.0, description="HICRA: bonus of planning tokens; 0 is off (share of the advantage)."
    )
    grams: Annotated[
        Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)] | None,
        BeforeValidator(tuple_from_list),
    ] = Field(
        None, description="Phrases that mark planning tokens; null: the 18 of the literature."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(shaping_violations(self))
        return self


class _AdvantageConfig(Section):
    """What every estimator is followed by."""

    shaping: ShapingConfig = Field(
        default_factory=ShapingConfig, description="Weights of single tokens."
    )


class GaeConfig(_AdvantageConfig):
    """Generalised advantage estimation with a critic."""

    kind: Literal["gae"] = Field("gae", description="Name of the advantage estimator.")
    gamma: Fraction = Field(1.0, description="Discount per sampled token (no unit).")
    lam: Fraction = Field(1.0, description="GAE lambda per sampled token (no unit).")


class GaeBilevelConfig(_AdvantageConfig):
    """GAE over the ends of turns first, then over the tokens inside each turn; with a critic."""

    kind: Literal["gae_bilevel"] = Field(
        "gae_bilevel", description="Name of the advantage estimator."
    )
    gamma: Fraction = Field(1.0, description="Discount per sampled token of a turn (no unit).")
    lam: Fraction = Field(1.0, description="GAE lambda per sampled token of a turn (no unit).")
    gamma_turn: Fraction = Field(0.95, description="Discount per turn (no unit).")
    lam_turn: Fraction = Field(1.0, description="GAE lambda per turn (no unit).")


class _GroupConfig(_AdvantageConfig):
    """What an episode earned relative to the other rollouts of its prompt; no critic."""

    outcome: Literal["reward", "success"] = Field(
        "reward", description="What is compared: the episode's reward, or its success (0 or 1)."
    )
    singleton: float = Field(
        0.0, description="Advantage of an episode that is alone in its group (no unit)."
    )


class GrpoConfig(_GroupConfig):
    """Outcome minus the group's mean, over the group's std."""

    kind: Literal["grpo"] = Field("grpo", description="Name of the advantage estimator.")
    normalize_std: bool = Field(
        True, description="Whether to divide by the group's std; false is Dr.GRPO."
    )
    ddof: Literal[0, 1] = Field(
        1, description="Std of the sample (1) or of the population (0), in degrees of freedom."
    )


class GrpoCenterConfig(_GroupConfig):
    """Outcome minus the group's mean: textpolicy's baseline."""

    kind: Literal["grpo_center"] = Field(
        "grpo_center", description="Name of the advantage estimator."
    )


class RlooConfig(_GroupConfig):
    """Outcome minus the mean of the others."""

    kind: Literal["rloo"] = Field("rloo", description="Name of the advantage estimator.")


class MaxrlConfig(_GroupConfig):
    """Outcome minus the group's mean, over that mean: rare successes count more."""

    kind: Literal["maxrl"] = Field("maxrl", description="Name of the advantage estimator.")
    outcome: Literal["reward", "success"] = Field(
        "success",
        description="What is compared: the episode's success (0 or 1), or a reward >= 0.",
    )
    eps: PositiveFloat = Field(
        1e-6, description="Added to the mean; a group whose mean is not above it learns nothing."
    )


class ReinforcePpConfig(_AdvantageConfig):
    """Discounted reward to go, whitened over the batch; no groups, no critic."""

    kind: Literal["reinforce_pp"] = Field(
        "reinforce_pp", description="Name of the advantage estimator."
    )
    gamma: Fraction = Field(1.0, description="Discount per sampled token (no unit).")


class ReinforcePpBaselineConfig(_GroupConfig):
    """Outcome minus the group's mean, whitened over the batch; no critic."""

    kind: Literal["reinforce_pp_baseline"] = Field(
        "reinforce_pp_baseline", description="Name of the advantage estimator."
    )


class CustomAdvantageConfig(_AdvantageConfig):
    """A custom estimator: `(outcome_N, group_N, **arguments) -> advantages_N`."""

    kind: Literal["custom"] = Field("custom", description="Name of the advantage estimator.")
    outcome: Literal["reward", "success"] = Field(
        "reward", description="What is compared: the episode's reward, or its success (0 or 1)."
    )
    estimator: ImportPath = Field(
        description="Import path of the function: my_pkg.my_mod:my_estimator. The folder that "
        "rltune is called in is on the path."
    )
    arguments: FreeMapping = Field(
        default_factory=dict, description="Keyword arguments of the function (JSON values)."
    )


Advantage = (
    GaeConfig
    | GaeBilevelConfig
    | GrpoConfig
    | GrpoCenterConfig
    | RlooConfig
    | MaxrlConfig
    | ReinforcePpConfig
    | ReinforcePpBaselineConfig
    | CustomAdvantageConfig
)


def long_advantage(value: Any) -> Any:
    """Return the short forms of an advantage section in full; anything else unchanged.

    `my_pkg.my_mod:my_estimator` is a custom function, and a name is a kind.
    """
    if not isinstance(value, str):
        return value
    return {"kind": "custom", "estimator": value} if ":" in value else {"kind": value}
