"""The loss section: the policy's objective, and the entropy and KL terms beside it."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rltune.spec.errors import refuse
from rltune.spec.schema.base import Fraction, KlType, NonNegativeFloat, PositiveFloat, Section
from rltune.spec.validators import clip_violations, loss_violations


class LossTerms(Section):
    """What all policy losses share: how tokens are averaged, and the terms beside them."""

    kind: str
    aggregation: Literal[
        "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
    ] = Field(
        "token-mean",
        description="How token losses become one number; seq-mean-token-sum-norm divides all terms "
        "by optim.mini_batch_size times sum_norm, whatever is trained on.",
    )
    sum_norm: PositiveFloat = Field(
        1.0,
        description="Divisor of seq-mean-token-sum-norm, about the sampled tokens of an episode "
        "(tokens); unused otherwise.",
    )
    entropy_coeff: NonNegativeFloat = Field(
        0.0, description="Weight of the mean token entropy that is added as a bonus, per nat."
    )
    use_kl_loss: bool = Field(
        False, description="Whether the KL to the starting policy is computed and added."
    )
    kl_loss_coef: NonNegativeFloat = Field(
        0.0, description="Weight of the mean token KL to the starting policy, per nat."
    )
    kl_type: KlType = Field(
        "k2", description="KL estimator; suffix + keeps its value with the gradient of k2."
    )
    kl_target: PositiveFloat | None = Field(
        None,
        description="KL that an adaptive coefficient steers to, in nats per token; null keeps "
        "kl_loss_coef fixed.",
    )
    kl_horizon: PositiveFloat = Field(
        10000.0, description="How slowly the coefficient moves, in episodes."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse([*loss_violations(self), *clip_violations(self)])
        return self


class _ClippedLoss(LossTerms):
    clip_low: Fraction = Field(
        0.2,
        description="Ratio is clipped below at 1 - clip_low (no unit); gspo 3e-4, turn 3e-3.",
    )
    clip_high: NonNegativeFloat = Field(
        0.28,
        description="Ratio is clipped above at 1 + clip_high (no unit); gspo 4e-4, turn 4e-3.",
    )


class PpoLoss(_ClippedLoss):
    """The ratio of a token, without a gradient beyond its bounds."""

    kind: Literal["ppo"] = Field("ppo", description="Name of the policy loss.")
    dual_clip: Annotated[float, Field(gt=1.0)] | None = Field(
        3.0,
        description="Bound on the ratio where the advantage is negative (no unit); null is off.",
    )


class GspoLoss(_ClippedLoss):
    """The mean ratio of an episode."""

    kind: Literal["gspo"] = Field("gspo", description="Name of the policy loss.")


class CispoLoss(_ClippedLoss):
    """The ratio of a token as a bounded weight: every token keeps its gradient."""

    kind: Literal["cispo"] = Field("cispo", description="Name of the policy loss.")


class ReinforceLoss(LossTerms):
    """No ratio, and so no bounds."""

    kind: Literal["reinforce"] = Field("reinforce", description="Name of the policy loss.")


class TurnLoss(_ClippedLoss):
    """The mean ratio of a turn."""

    kind: Literal["turn"] = Field("turn", description="Name of the policy loss.")
    turn_clip_beta: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        0.0,
        description="How far a turn's information gain widens or narrows its clip bounds; 0 is "
        "off (no unit).",
    )


Loss = PpoLoss | GspoLoss | CispoLoss | ReinforceLoss | TurnLoss
