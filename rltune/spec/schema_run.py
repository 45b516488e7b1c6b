"""The sections about a run rather than a method: gate, budget, checkpoints, resources, tracking."""

from typing import Annotated, Literal

from pydantic import Field, Strict

from rltune.spec.schema_base import NonNegativeFloat, PositiveFloat, PositiveInt, Section


class GateConfig(Section):
    """Held-out evaluation, the only thing that may choose a checkpoint."""

    every: PositiveInt = Field(10, description="Training steps between two evaluations.")
    tasks: PositiveInt = Field(512, description="Size of the frozen held-out split, in tasks.")
    test_tasks: int = Field(
        512,
        ge=0,
        description="Size of the frozen final test split, in tasks; read by `rltune test` only.",
    )
    temperature: NonNegativeFloat = Field(
        0.5, description="Sampling temperature of the evaluation; 0 is greedy."
    )


class BudgetConfig(Section):
    """How long a trial trains."""

    steps: PositiveInt = Field(400, description="Length of a trial, in training steps.")


class CheckpointConfig(Section):
    """When a trial can be taken up again; not part of a trial's identity."""

    every: PositiveInt = Field(50, description="Training steps between two checkpoints.")
    keep_last: PositiveInt = Field(
        2, description="Checkpoints kept besides the best one, in checkpoints."
    )


class ResourcesConfig(Section):
    """What a trial may use of a machine."""

    cpus: PositiveFloat = Field(1.0, description="CPU cores reserved for a trial, in cores.")
    gpus: NonNegativeFloat = Field(0.0, description="GPUs reserved for a trial, in devices.")
    threads: PositiveInt = Field(
        1, description="Threads given to torch; part of the identity, it can change the last bit."
    )


class TrackingConfig(Section):
    """Where metrics are mirrored; not part of a trial's identity."""

    wandb: Literal["disabled", "offline", "online"] = Field(
        "offline", description="Mode of the Weights & Biases mirror; offline needs no account."
    )
    project: Annotated[str, Field(min_length=1), Strict()] | None = Field(
        None, description="Weights & Biases project; null names it after the sweep."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe message that a trial writes to its log."
    )
