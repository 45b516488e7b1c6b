"""The trial config: one frozen typed tree with a sentence and a unit for every key.

What two keys of different sections must satisfy together is in `rltune.spec.crosschecks`.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from rltune.spec.crosschecks import (
    cross_violations,
    loss_violations,
    optim_violations,
    refuse,
    require_untruncated_top_k,
    require_untruncated_top_p,
    rollout_violations,
)
from rltune.spec.schema_base import (
    Fraction,
    KlType,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Section,
    tuple_from_list,
)
from rltune.spec.schema_env import Env, SokobanConfig, with_kind
from rltune.spec.schema_reward import RewardConfig, long_reward
from rltune.spec.schema_run import (
    BudgetConfig,
    CheckpointConfig,
    GateConfig,
    ResourcesConfig,
    TrackingConfig,
)


class PolicyConfig(Section):
    """The model that is trained."""

    model: str = Field(
        min_length=1,
        description="`tiny` (shipped), a Hugging Face id, or a folder with a saved model.",
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="Number format of the computation; weights are float32 in any case."
    )
    template: Literal["auto", "plain"] = Field(
        "auto",
        description="Chat markup: the model's own when it has one (auto), or none (plain).",
    )


class RolloutConfig(Section):
    """How training episodes are sampled."""

    engine: Literal["torch"] = Field(
        "torch", description="What samples tokens: the policy itself, batched in torch."
    )
    groups: PositiveInt = Field(8, description="Prompts per training step, in groups.")
    group_size: PositiveInt = Field(16, description="Rollouts of one prompt, in episodes.")
    temperature: PositiveFloat = Field(
        1.0, description="Sampling temperature of training rollouts (logits are divided by it)."
    )
    top_p: Annotated[float, AfterValidator(require_untruncated_top_p)] = Field(
        1.0, description="Nucleus share of training sampling; 1.0 only, it would bias the ratios."
    )
    top_k: Annotated[int, AfterValidator(require_untruncated_top_k)] = Field(
        -1, description="Top-k of training sampling, in tokens; -1 (off) only, as for top_p."
    )
    max_response_tokens: PositiveInt = Field(400, description="Limit of one response, in tokens.")
    max_context: PositiveInt = Field(3600, description="Limit of a whole episode, in tokens.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(rollout_violations(self))
        return self


class RolloutFilterConfig(Section):
    """Which groups teach: selection by a per-group score after the rollouts."""

    strategy: Literal["top_p", "top_k", "top_k_abs", "min_p"] = Field(
        "top_p", description="How groups are selected by score."
    )
    value: float = Field(
        1.0,
        ge=0.0,
        description="Share of score (top_p), share of groups (top_k), groups (top_k_abs), or share "
        "of the best score (min_p) that is kept.",
    )
    mode: Literal["softmax", "mass"] = Field(
        "softmax",
        description="Share for top_p: of softmax(score), or of the score's sum (scale free).",
    )
    metric: Literal["reward_variance", "reward_variance_mass"] = Field(
        "reward_variance",
        description="Score of a group: std of rewards (so named in print), or the true variance.",
    )
    type: Literal["largest", "smallest"] = Field(
        "largest", description="Which end of the score is kept."
    )
    include_zero: bool = Field(
        True, description="Whether groups without any reward spread take part in the selection."
    )
    on_drop: Literal["drop", "mask"] = Field(
        "drop",
        description="Dropped groups leave the batch (fewer optimiser steps), or stay with mask 0.",
    )
    loss_scaling: Literal["none", "linear", "sqrt"] = Field(
        "none", description="Factor on the advantages from the kept share r: 1, r, or sqrt(r)."
    )
    empty_stop_steps: PositiveInt = Field(
        5,
        description="Steps in a row with nothing kept after which the trial stops early, in "
        "training steps.",
    )


class GaeConfig(Section):
    """Generalised advantage estimation with a critic."""

    kind: Literal["gae"] = Field("gae", description="Name of the advantage estimator.")
    gamma: Fraction = Field(1.0, description="Discount per sampled token (no unit).")
    lam: Fraction = Field(1.0, description="GAE lambda per sampled token (no unit).")


class GrpoConfig(Section):
    """Reward relative to the other rollouts of the same prompt; no critic."""

    kind: Literal["grpo"] = Field("grpo", description="Name of the advantage estimator.")
    normalize_std: bool = Field(
        True, description="Whether to divide by the group's std; false is Dr.GRPO."
    )


class LossConfig(Section):
    """The policy's objective."""

    kind: Literal["ppo"] = Field("ppo", description="Name of the policy loss.")
    clip_low: Fraction = Field(0.2, description="Ratio is clipped below at 1 - clip_low (no unit).")
    clip_high: NonNegativeFloat = Field(
        0.28, description="Ratio is clipped above at 1 + clip_high (no unit)."
    )
    dual_clip: float = Field(
        3.0, gt=1.0, description="Bound on the ratio where the advantage is negative (no unit)."
    )
    aggregation: Literal[
        "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
    ] = Field("token-mean", description="How token losses become one number.")
    sum_norm: PositiveFloat = Field(
        1.0, description="Divisor of seq-mean-token-sum-norm, in tokens; unused otherwise."
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

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(loss_violations(self))
        return self


class CriticConfig(Section):
    """The value function; used by advantage.kind gae."""

    backbone: Literal["own", "policy"] = Field(
        "own",
        description="Values from a trained copy of the policy's backbone, or from a small network "
        "on the policy's own hidden states (half the cost).",
    )
    lr: PositiveFloat = Field(1e-5, description="Learning rate of the critic, per step.")
    value_clip: PositiveFloat = Field(
        0.5, description="Largest move of a value in one update, in reward."
    )
    warmup_steps: int = Field(
        0,
        ge=0,
        description="Steps at the start in which only the critic learns, in training steps.",
    )


class OptimConfig(Section):
    """The policy's optimiser and how a batch is cut."""

    lr: PositiveFloat = Field(1e-6, description="Learning rate of the policy, per optimiser step.")
    betas: Annotated[
        tuple[Annotated[float, Field(ge=0.0, lt=1.0)], Annotated[float, Field(ge=0.0, lt=1.0)]],
        BeforeValidator(tuple_from_list),
    ] = Field((0.9, 0.999), description="AdamW decay of the first and second moment (no unit).")
    weight_decay: NonNegativeFloat = Field(0.01, description="AdamW weight decay (no unit).")
    grad_clip: PositiveFloat = Field(1.0, description="Largest global gradient norm.")
    mini_batch_size: PositiveInt = Field(32, description="Rollouts per optimiser step.")
    micro_batch_size: PositiveInt = Field(
        4,
        description="Rollouts per forward pass; changes memory, and only the last bits of results.",
    )
    epochs: PositiveInt = Field(1, description="Passes over one batch, in epochs.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(optim_violations(self))
        return self


Advantage = GaeConfig | GrpoConfig


class TrialConfig(Section):
    """Everything that one training run depends on."""

    seed: int = Field(0, ge=0, lt=2**31, description="Seed (no unit) of every random stream.")
    env: Annotated[Env, Field(discriminator="kind"), BeforeValidator(with_kind)] = Field(
        default_factory=SokobanConfig,
        description="The tasks; variants differ by kind. Short for a class of one's own: its "
        "import path.",
    )
    reward: Annotated[RewardConfig | None, BeforeValidator(long_reward)] = Field(
        None,
        description="What an episode earns: the env's own reward (null), a rubric of scores, or "
        "one score.",
    )
    policy: PolicyConfig = Field(description="The model that is trained.")
    rollout: RolloutConfig = Field(
        default_factory=RolloutConfig, description="How training episodes are sampled."
    )
    rollout_filter: RolloutFilterConfig = Field(
        default_factory=RolloutFilterConfig, description="Which groups teach."
    )
    advantage: Annotated[Advantage, Field(discriminator="kind")] = Field(
        default_factory=GaeConfig, description="The advantage estimator; variants differ by kind."
    )
    loss: LossConfig = Field(default_factory=LossConfig, description="The policy's objective.")
    critic: CriticConfig = Field(default_factory=CriticConfig, description="The value function.")
    optim: OptimConfig = Field(
        default_factory=OptimConfig, description="The policy's optimiser and how a batch is cut."
    )
    gate: GateConfig = Field(default_factory=GateConfig, description="Held-out evaluation.")
    budget: BudgetConfig = Field(
        default_factory=BudgetConfig, description="How long a trial trains."
    )
    checkpoint: CheckpointConfig = Field(
        default_factory=CheckpointConfig, description="When a trial can be taken up again."
    )
    resources: ResourcesConfig = Field(
        default_factory=ResourcesConfig, description="What a trial may use of a machine."
    )
    tracking: TrackingConfig = Field(
        default_factory=TrackingConfig, description="Where metrics are mirrored."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(cross_violations(dict(self)))
        return self


def to_plain(config: TrialConfig) -> dict[str, Any]:
    """Return the config as a nested dict of JSON values, every default spelled out."""
    return config.model_dump(mode="json")
