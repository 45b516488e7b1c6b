"""The trial config: one frozen typed tree with a sentence and a unit for every key.

What two keys of different sections must satisfy together is in `rltune.spec.validators`.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from rltune.spec.errors import refuse
from rltune.spec.schema.advantage import Advantage, GaeConfig, long_advantage
from rltune.spec.schema.attribution import Attribution, NoAttributionConfig, long_attribution
from rltune.spec.schema.base import (
    LearningRate,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Section,
    tuple_from_list,
    with_default,
)
from rltune.spec.schema.env import DEFAULT_KIND, Env, SokobanConfig, long_env
from rltune.spec.schema.loss import Loss, PpoLoss
from rltune.spec.schema.reward import RewardConfig, long_reward
from rltune.spec.schema.rollout import (
    NoCorrection,
    RolloutConfig,
    RolloutCorrection,
    RolloutFilter,
    TopPFilter,
)
from rltune.spec.schema.run import (
    BudgetConfig,
    CheckpointConfig,
    CollapseConfig,
    EarlyStopConfig,
    GateConfig,
    ResourcesConfig,
    TrackingConfig,
    TrainerConfig,
)
from rltune.spec.validators import cross_violations, optim_violations, require_tokens


class LoraConfig(Section):
    """Low-rank adapters: what is trained in place of the weights."""

    rank: Annotated[int, Field(ge=0)] = Field(
        0, description="Columns of an adapter's matrices; 0 trains all weights, without adapters."
    )
    alpha: PositiveFloat = Field(
        16.0, description="An adapter's output is scaled by alpha / rank (no unit)."
    )
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(
        0.0,
        description="Share of an adapter's inputs that the update's forward pass drops; whatever "
        "scores, samples or evaluates drops none.",
    )
    targets: Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(tuple_from_list)] = (
        Field(
            ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
            description="Last names of the linear layers that get an adapter, in every block.",
        )
    )
    init: str = Field(
        "default",
        min_length=1,
        description="`default` (the start is the base), a folder with an adapter saved by peft, or "
        "the adapter of a trial, `trial:RUN/TRIAL`; a KL term ties the policy to this start.",
    )


class PolicyConfig(Section):
    """The model that is trained."""

    model: str = Field(
        min_length=1,
        description="`tiny` (shipped), a Hugging Face id, a folder with a saved model, or the "
        "model of a trial: `trial:RUN/TRIAL`, and `@STEP`, `@best` or `@latest` behind it; for "
        "GGUF see `rltune convert`.",
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="Number format of the computation; trained weights are float32."
    )
    template: Literal["auto", "append", "plain"] = Field(
        "auto",
        description="Chat markup: the model's own when it has one (auto), its frames around "
        "responses that it would rewrite later (append), or none (plain).",
    )
    lora: LoraConfig = Field(
        default_factory=LoraConfig, description="Adapters that are trained; all weights by default."
    )


class CriticConfig(Section):
    """The value function; used by advantage.kind gae and gae_bilevel."""

    backbone: Literal["own", "policy"] = Field(
        "own",
        description="Values from a trained copy of the policy's backbone, or from a small network "
        "on the policy's own hidden states (half the cost).",
    )
    lr: LearningRate = Field(1e-5, description="Learning rate of the critic, per step.")
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

    lr: LearningRate = Field(1e-6, description="Learning rate of the policy, per optimiser step.")
    betas: Annotated[
        tuple[Annotated[float, Field(ge=0.0, lt=1.0)], Annotated[float, Field(ge=0.0, lt=1.0)]],
        BeforeValidator(tuple_from_list),
    ] = Field((0.9, 0.999), description="AdamW decay of the first and second moment (no unit).")
    weight_decay: NonNegativeFloat = Field(0.01, description="AdamW weight decay (no unit).")
    grad_clip: PositiveFloat = Field(1.0, description="Largest global gradient norm.")
    mini_batch_size: PositiveInt = Field(32, description="Rollouts per optimiser step.")
    minibatch_by: Literal["row", "group"] = Field(
        "row",
        description="What a batch is shuffled by into mini-batches: single rollouts, or whole "
        "groups of rollouts of one prompt.",
    )
    tokens_per_micro_batch: Annotated[
        PositiveInt | Literal["auto"], BeforeValidator(require_tokens)
    ] = Field(
        "auto",
        description="Most tokens per forward pass, padding included; a longer rollout is a pass of "
        "its own. auto: as many as 64 MiB of activations hold on a CPU, 1.5 GiB on a GPU, and at "
        "least rollout.max_context. Changes memory, and of results the last bits only (and which "
        "inputs policy.lora.dropout drops).",
    )
    micro_batch_size: PositiveInt | None = Field(
        None,
        description="Most rollouts per forward pass, likewise; null: as many as "
        "tokens_per_micro_batch allows.",
    )
    epochs: PositiveInt = Field(1, description="Passes over one batch, in epochs.")
    gradient_checkpointing: bool = Field(
        False,
        description="Whether activations are computed again in the backward pass: less memory, "
        "about a third more time.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(optim_violations(self))
        return self


class TrialConfig(Section):
    """Everything that one training run depends on."""

    seed: int = Field(0, ge=0, lt=2**31, description="Seed (no unit) of every random stream.")
    env: Annotated[
        Env,
        Field(discriminator="kind"),
        BeforeValidator(with_default("kind", DEFAULT_KIND)),
        BeforeValidator(long_env),
    ] = Field(
        default_factory=SokobanConfig,
        description="The tasks; variants differ by kind. Short form of a custom class: "
        "its import path.",
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
    rollout_filter: Annotated[
        RolloutFilter,
        Field(discriminator="strategy"),
        BeforeValidator(with_default("strategy", "top_p")),
    ] = Field(
        default_factory=TopPFilter, description="Which groups teach; variants differ by strategy."
    )
    advantage: Annotated[
        Advantage,
        Field(discriminator="kind"),
        BeforeValidator(with_default("kind", "gae")),
        BeforeValidator(long_advantage),
    ] = Field(
        default_factory=GaeConfig,
        description="The advantage estimator; variants differ by kind. Short form of a custom "
        "function: its import path.",
    )
    attribution: Annotated[
        Attribution,
        Field(discriminator="kind"),
        BeforeValidator(with_default("kind", "adca")),
        BeforeValidator(long_attribution),
    ] = Field(
        default_factory=NoAttributionConfig,
        description="Credit of single turns; variants differ by kind, null is none.",
    )
    rollout_correction: Annotated[
        RolloutCorrection,
        Field(discriminator="kind"),
        BeforeValidator(with_default("kind", "none")),
    ] = Field(
        default_factory=NoCorrection,
        description="Weights for what the engine sampled with other probabilities; variants differ "
        "by kind.",
    )
    loss: Annotated[
        Loss, Field(discriminator="kind"), BeforeValidator(with_default("kind", "ppo"))
    ] = Field(
        default_factory=PpoLoss, description="The policy's objective; variants differ by kind."
    )
    critic: CriticConfig = Field(default_factory=CriticConfig, description="The value function.")
    optim: OptimConfig = Field(
        default_factory=OptimConfig, description="The policy's optimiser and how a batch is cut."
    )
    gate: GateConfig = Field(default_factory=GateConfig, description="Held-out evaluation.")
    budget: BudgetConfig = Field(
        default_factory=BudgetConfig, description="How long a trial trains."
    )
    early_stop: EarlyStopConfig = Field(
        default_factory=EarlyStopConfig, description="Rules that end a collapsed trial."
    )
    collapse: CollapseConfig = Field(
        default_factory=CollapseConfig, description="Signals of collapsing reasoning."
    )
    checkpoint: CheckpointConfig = Field(
        default_factory=CheckpointConfig, description="When a trial can be taken up again."
    )
    resources: ResourcesConfig = Field(
        default_factory=ResourcesConfig, description="What a trial may use of a machine."
    )
    trainer: TrainerConfig = Field(
        default_factory=TrainerConfig, description="Where the policy is trained."
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
