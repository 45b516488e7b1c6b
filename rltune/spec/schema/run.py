"""The sections about a run rather than a method: gate, budget, checkpoints, resources, tracking."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Strict

from rltune.spec.errors import Violation, refuse
from rltune.spec.schema.base import NonNegativeFloat, PositiveFloat, PositiveInt, Section


def whole_or_share(gpus: float) -> float:
    """Return a number of GPUs when a trial can use all of it: a share of one, or whole ones."""
    if gpus > 1 and not float(gpus).is_integer():
        what = f"{gpus:g} GPUs cannot be used: a trial takes a share of one, or whole ones."
        action = "Give a share such as 0.5, or a whole number, each of which trains as one rank."
        refuse([Violation("", what, action)])
    return gpus


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
    start_kl: bool = Field(
        False,
        description="Whether each evaluation measures the KL to the trial's start, in nats per "
        "sampled token, with or without a KL loss; keeps a frozen copy of the start.",
    )


class BudgetConfig(Section):
    """How long a trial trains."""

    steps: PositiveInt = Field(400, description="Length of a trial, in training steps.")
    train_wall_s: PositiveFloat | None = Field(
        None,
        description="Longest that the training steps of a trial may take, in seconds over all "
        "attempts; null is no limit. Looked at between steps.",
    )
    eval_wall_s: PositiveFloat | None = Field(
        None,
        description="Longest that one held-out evaluation may take, in seconds; null is no limit. "
        "Looked at before the next training step.",
    )


class EarlyStopConfig(Section):
    """Named rules that end a trial that has collapsed; none by default, see rollout_filter too."""

    reward_std_share: Annotated[float, Field(gt=0.0, lt=1.0)] | None = Field(
        None,
        description="Spread of rewards in a group below which a trial counts as collapsed, as a "
        "share of its mean over the first 10 training steps; RAGEN-2: 0.1. Null is off. With it, "
        "a trial whose groups had no spread since its start ends, too.",
    )
    reward_std_steps: PositiveInt = Field(
        10, description="Steps in a row with such a spread that end it, in training steps."
    )
    heldout_success: Annotated[float, Field(gt=0.0, le=1.0)] | None = Field(
        None,
        description="Held-out success rate below which a gate counts as lost; RAGEN-2: 0.01. Null "
        "is off.",
    )
    heldout_gates: int = Field(
        5,
        ge=2,
        description="Gates in a row with such a rate that end a trial, in gates; the untrained "
        "policy's counts.",
    )


class CollapseConfig(Section):
    """Whether reasoning still depends on the prompt (RAGEN-2): cross-scored responses."""

    every: int = Field(
        0, ge=0, description="Training steps between two measurements; 0 is off. It costs time."
    )
    prompts: int = Field(
        8, ge=2, description="Prompts, one episode of each, that are cross-scored, in prompts."
    )


class CheckpointConfig(Section):
    """When a trial can be taken up again; not part of a trial's identity."""

    every: PositiveInt = Field(50, description="Training steps between two checkpoints.")
    keep_last: PositiveInt = Field(
        2, description="Checkpoints kept besides the best one, in checkpoints."
    )


class ResourcesConfig(Section):
    """What a trial may use of a machine."""

    cpus: PositiveFloat = Field(1.0, description="CPU cores reserved for a trial, in cores.")
    gpus: Annotated[NonNegativeFloat, AfterValidator(whole_or_share)] = Field(
        0.0,
        description="GPUs reserved for a trial, in devices; 0.25 is a quarter of one and of its "
        "memory. Several train as one rank each.",
    )
    ranks: PositiveInt = Field(
        1,
        description="Processes that train a trial together on a CPU, each with a part of weights, "
        "gradients and optimiser states; on GPUs there is one for each.",
    )
    engine: Literal["shared", "own", "shared_by_sweep"] = Field(
        "shared",
        description="Where the rollout engine lives: in the trial's process and on its GPU; in a "
        "process of its own, with one more GPU where the trial has any; or in one process for all "
        "trials of a sweep, with an adapter for each. It samples the same.",
    )
    threads: PositiveInt = Field(
        1, description="Threads given to torch; part of the identity, it can change the last bit."
    )


class TrainerConfig(Section):
    """Where the policy is trained."""

    backend: Literal["torch", "tinker"] = Field(
        "torch",
        description="What trains and samples: torch in the trial's process, or a service that "
        "speaks the Tinker protocol (TINKER_BASE_URL, TINKER_API_KEY; adapters only).",
    )
    timeout_s: PositiveFloat = Field(
        900.0,
        description="Longest wait for one answer of the service, in seconds; nothing for torch.",
    )
    prices: Annotated[str, Field(min_length=1)] | None = Field(
        None,
        description="File of what the service charges, in YAML; null computes no cost. Nothing for "
        "torch, and so are the two limits below.",
    )
    max_requests: PositiveInt | None = Field(
        None,
        description="Most answers that a trial may ask of the service, in calls over all attempts; "
        "null is no limit. Looked at between steps.",
    )
    max_cost: PositiveFloat | None = Field(
        None,
        description="Most that a trial may cost, in the currency of `prices`, over all attempts; "
        "null is no limit. Looked at between steps.",
    )


def ranks_of(resources: ResourcesConfig) -> int:
    """Return how many processes train a trial together."""
    return max(resources.ranks, int(resources.gpus))


def engine_devices(config: Mapping[str, Any]) -> int:
    """Return how many GPUs the engines of a trial take beside the trainer's, where it has any.

    On a CPU: how many processes sample at a time. A record from before a key has its default.
    """
    if config.get("resources", {}).get("engine") != "own":
        return 0
    rollout = config.get("rollout", {})
    is_vllm = rollout.get("engine") == "vllm"
    parts = rollout.get("vllm", {}).get("tensor_parallel", 1) if is_vllm else 1
    return int(rollout.get("replicas", 1)) * int(parts)


def reserved_cpus(config: Mapping[str, Any]) -> float:
    """Return the cores that a trial takes: at least one for each process that works at a time."""
    resources = config["resources"]
    ranks = max(int(resources.get("ranks", 1)), int(resources["gpus"]))
    engines = engine_devices(config)
    is_ahead = config.get("rollout", {}).get("ahead", 0)  # else ranks and engines take turns
    most = ranks + engines if is_ahead else max(ranks, engines)
    return max(float(resources["cpus"]), float(most) if most > 1 else 0.0)


def reserved_gpus(config: Mapping[str, Any]) -> float:
    """Return the GPUs that a trial takes, those of its rollout engines included."""
    gpus = float(config.get("resources", {}).get("gpus", 0.0))
    return gpus + engine_devices(config) if gpus else gpus


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
