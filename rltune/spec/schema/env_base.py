"""Keys that environments share: how a task is shown, how many there are, what a bad turn costs."""

from typing import Literal

from pydantic import Field

from rltune.spec.schema.base import PositiveInt, Section

Prompt = Literal["natural", "compact"]


class TasksConfig(Section):
    """Keys that every environment has."""

    kind: str = Field(description="Name of the environment.")  # first, in each variant
    prompt: Prompt = Field(
        "natural",
        description="How a task is shown: natural language, or the few tokens that `tiny` knows.",
    )
    train_tasks: PositiveInt = Field(
        4096, description="Size of the frozen training split, in tasks."
    )
    split_seed: int = Field(
        0,
        ge=0,
        lt=2**23,
        description="Seed (no unit) from which the disjoint task splits are generated.",
    )


class ShippedConfig(TasksConfig):
    """Keys of every shipped environment."""

    format_penalty: float = Field(
        -0.1,
        le=0.0,
        description="Reward added to a turn that is malformed or names no allowed action.",
    )
