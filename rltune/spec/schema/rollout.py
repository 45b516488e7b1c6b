"""The rollout sections: how episodes are sampled, which groups teach, and what corrects ratios."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from rltune.spec.errors import refuse
from rltune.spec.schema.base import Fraction, PositiveFloat, PositiveInt, Section
from rltune.spec.validators import (
    require_untruncated_top_k,
    require_untruncated_top_p,
    rollout_violations,
)


class VllmConfig(Section):
    """How vLLM is set up, where it is the engine."""

    kv_cache_gib: PositiveFloat = Field(
        2.0, description="Memory for keys and values, in GiB; at least one whole episode's."
    )
    eager: bool = Field(
        True,
        description="Start in seconds without compiling; false compiles, and captures graphs on a "
        "GPU: minutes at the start, faster steps.",
    )
    sleep: bool = Field(
        False,
        description="Whether vLLM gives its GPU memory back while the trainer updates; its weights "
        "wait in the host's memory.",
    )
    tensor_parallel: PositiveInt = Field(
        1,
        description="Processes of an engine with a part of every layer each, on a GPU each where "
        "the trial has any; divides the model's heads.",
    )


class RolloutConfig(Section):
    """How training episodes are sampled."""

    engine: Literal["torch", "vllm"] = Field(
        "torch",
        description="What samples tokens: the policy itself, batched in torch, or vLLM, which "
        "keeps weights of its own.",
    )
    vllm: VllmConfig = Field(
        default_factory=VllmConfig, description="Setup of the engine vllm; nothing for torch."
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
    ahead: Annotated[int, Field(ge=0, le=1)] = Field(
        0,
        description="Steps that sampling is ahead of training, in training steps: 1 samples the "
        "rollouts of the next step while a step trains, by weights that are one step older.",
    )
    replicas: PositiveInt = Field(
        1,
        description="Engines that share the episodes of a step, each in a process of its own with "
        "weights of its own, on a GPU of its own where the trial has any.",
    )
    workers: Annotated[int, Field(ge=1, le=1024)] = Field(
        32,
        description="Custom or waiting environments that step, and their verifiers that score, at "
        "a time, in threads; changes no number.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(rollout_violations(self))
        return self


class FilterTerms(Section):
    """What all rollout filters share: the score of a group, and what becomes of dropped ones."""

    strategy: str
    value: float = Field(
        1.0,
        ge=0.0,
        description="Share of score (top_p), share of groups (top_k), groups (top_k_abs), or share "
        "of the best score (min_p) that is kept.",
    )
    metric: Literal["reward_variance", "reward_variance_mass", "entropy", "length"] = Field(
        "reward_variance",
        description="Score of a group: std of rewards (so named in print), the true variance, "
        "mean surprisal of its tokens in nats, or mean length in tokens.",
    )
    ddof: Literal[0, 1] = Field(
        1, description="Spread of the sample (1) or of the population (0), in degrees of freedom."
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


class TopPFilter(FilterTerms):
    """The groups that hold a share of the score; with value 1.0 all of them."""

    strategy: Literal["top_p"] = Field("top_p", description="How groups are selected by score.")
    mode: Literal["softmax", "mass"] = Field(
        "softmax",
        description="Share of softmax(score), or of the score's sum (scale free).",
    )


class TopKFilter(FilterTerms):
    """A share of the groups."""

    strategy: Literal["top_k"] = Field("top_k", description="How groups are selected by score.")


class TopKAbsFilter(FilterTerms):
    """A number of groups."""

    strategy: Literal["top_k_abs"] = Field(
        "top_k_abs", description="How groups are selected by score."
    )


class MinPFilter(FilterTerms):
    """The groups whose score is at least a share of the best."""

    strategy: Literal["min_p"] = Field("min_p", description="How groups are selected by score.")


RolloutFilter = TopPFilter | TopKFilter | TopKAbsFilter | MinPFilter


class NoCorrection(Section):
    """The sampled tokens count as they are."""

    kind: Literal["none"] = Field("none", description="Name of the correction.")


class TisCorrection(Section):
    """Truncated importance sampling: the trainer's probability over the engine's, up to a cap."""

    kind: Literal["tis"] = Field("tis", description="Name of the correction.")
    cap: Annotated[float, Field(ge=1.0)] = Field(2.0, description="Largest weight (no unit).")


class IcepopCorrection(Section):
    """The same ratio where it lies in a band, and 0 outside."""

    kind: Literal["icepop"] = Field("icepop", description="Name of the correction.")
    band_low: Fraction = Field(0.5, description="Lower end of the band (no unit).")
    band_high: Annotated[float, Field(ge=1.0)] = Field(
        5.0, description="Upper end of the band (no unit)."
    )


RolloutCorrection = NoCorrection | TisCorrection | IcepopCorrection
