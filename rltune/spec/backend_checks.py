"""What a service, ranks, and engines in processes of their own cannot do, each with what would.

A service returns the logprobs of the tokens that it is given, at temperature 1. What needs the
vocabulary or hidden states cannot be computed from them, and its adapters are made its way.
"""

from typing import TYPE_CHECKING

from rltune.spec.errors import Violation
from rltune.spec.estimators import CRITIC_KINDS, ESTIMATOR_KINDS
from rltune.spec.schema.run import ranks_of

if TYPE_CHECKING:
    from rltune.spec.schema.advantage import Advantage
    from rltune.spec.schema.attribution import Attribution
    from rltune.spec.schema.loss import LossTerms
    from rltune.spec.schema.rollout import RolloutConfig, RolloutCorrection
    from rltune.spec.schema.run import CollapseConfig, GateConfig, ResourcesConfig, TrainerConfig
    from rltune.spec.schema.trial import OptimConfig, PolicyConfig

ALPHA = 32.0
"""A service scales an adapter's output by 32 / rank."""

_WITH = "with trainer.backend tinker"


def remote_violations(
    trainer: "TrainerConfig",
    policy: "PolicyConfig",
    rollout: "RolloutConfig",
    advantage: "Advantage",
    attribution: "Attribution",
    loss: "LossTerms",
    optim: "OptimConfig",
    gate: "GateConfig",
    collapse: "CollapseConfig",
    resources: "ResourcesConfig",
) -> list[Violation]:
    """Return the keys that a service cannot honour."""
    if trainer.backend == "torch":
        return []
    return [
        *_price_violations(trainer),
        *_policy_violations(policy),
        *_credit_violations(advantage, attribution),
        *_loss_violations(loss),
        *_place_violations(rollout, optim, resources),
        *_measure_violations(gate, collapse),
    ]


def _price_violations(trainer: "TrainerConfig") -> list[Violation]:
    if trainer.max_cost is None or trainer.prices is not None:
        return []
    what = f"{trainer.max_cost:g} cannot be held: there are no prices."
    return [Violation("trainer.max_cost", what, "Name a price file in trainer.prices.")]


def _policy_violations(policy: "PolicyConfig") -> list[Violation]:
    lora, usual = policy.lora, type(policy.lora)()
    found = []
    if lora.rank == 0:
        what = f"0 would train all weights, and adapters alone are trained {_WITH}."
        found.append(Violation("policy.lora.rank", what, "Give a rank, such as 32."))
    if lora.alpha != ALPHA:
        what = f"{lora.alpha:g} cannot be had {_WITH}: the service scales by 32 / rank."
        found.append(Violation("policy.lora.alpha", what, "Set it to 32."))
    for name in ("dropout", "targets", "init"):
        value, only = getattr(lora, name), getattr(usual, name)
        if value != only:
            shown = list(value) if isinstance(value, tuple) else value
            what = f"{shown!r} cannot be had {_WITH}: the service makes its adapters."
            text = f"[{', '.join(only)}]" if isinstance(only, tuple) else only
            found.append(Violation(f"policy.lora.{name}", what, f"Set it to {text}."))
    if policy.dtype != "float32":
        what = f"{policy.dtype!r} cannot be chosen {_WITH}: the service decides."
        found.append(Violation("policy.dtype", what, "Set it to float32, which asks for nothing."))
    return found


def _credit_violations(advantage: "Advantage", attribution: "Attribution") -> list[Violation]:
    found = []
    if advantage.kind in CRITIC_KINDS:
        others = [name for name in ESTIMATOR_KINDS if name not in CRITIC_KINDS]
        what = f"{advantage.kind!r} needs a critic, which cannot be trained {_WITH}."
        action = f"Choose one without: {', '.join(others)}."
        found.append(Violation("advantage.kind", what, action))
    if advantage.shaping.gtpo_beta > 0 and advantage.shaping.signal == "entropy":
        what = f"'entropy' needs the whole vocabulary, which is not there {_WITH}."
        found.append(Violation("advantage.shaping.signal", what, "Set it to surprisal."))
    if attribution.kind == "info_gain":
        what = f"'info_gain' reads the policy's caches, which are not there {_WITH}."
        found.append(Violation("attribution.kind", what, "Choose none, or adca."))
    if attribution.kind == "adca" and attribution.judge == "gold":
        what = f"'gold' reads the policy's caches, which are not there {_WITH}."
        found.append(Violation("attribution.judge", what, "Choose solver, or llm."))
    return found


def _loss_violations(loss: "LossTerms") -> list[Violation]:
    found = []
    if loss.entropy_coeff > 0:
        what = f"{loss.entropy_coeff:g} needs the whole vocabulary, which is not there {_WITH}."
        found.append(Violation("loss.entropy_coeff", what, "Set it to 0."))
    if loss.kl_type in ("full", "full+"):
        what = f"{loss.kl_type!r} needs the whole vocabulary, which is not there {_WITH}."
        found.append(Violation("loss.kl_type", what, "Choose k2 or k3+."))
    return found


def _place_violations(
    rollout: "RolloutConfig",
    optim: "OptimConfig",
    resources: "ResourcesConfig",
) -> list[Violation]:
    found = []
    if rollout.engine != "torch":
        what = f"{rollout.engine!r} has no weights to serve {_WITH}: the service samples."
        found.append(Violation("rollout.engine", what, "Leave it at torch, which starts nothing."))
    if rollout.temperature != 1.0:
        what = f"{rollout.temperature:g} cannot be trained at {_WITH}: it scores at temperature 1."
        found.append(Violation("rollout.temperature", what, "Set it to 1."))
    if optim.gradient_checkpointing:
        what = f"true has no effect {_WITH}: no activation is held here."
        found.append(Violation("optim.gradient_checkpointing", what, "Set it to false."))
    if resources.gpus:
        what = f"{resources.gpus:g} would be reserved for nothing {_WITH}."
        found.append(Violation("resources.gpus", what, "Set it to 0."))
    if resources.engine != "shared":
        what = f"{resources.engine!r} would start nothing {_WITH}: the service samples."
        found.append(Violation("resources.engine", what, "Leave it at shared."))
    return found


def _measure_violations(gate: "GateConfig", collapse: "CollapseConfig") -> list[Violation]:
    found = []
    if gate.start_kl:
        what = f"true needs the whole vocabulary, which is not there {_WITH}."
        found.append(Violation("gate.start_kl", what, "Set it to false."))
    if collapse.every:
        what = f"{collapse.every} would score responses under other prompts, not there {_WITH}."
        found.append(Violation("collapse.every", what, "Set it to 0."))
    return found


def engine_violations(rollout: "RolloutConfig", resources: "ResourcesConfig") -> list[Violation]:
    """Return whether an engine cannot live in a process of its own, or in several."""
    if found := _replica_violations(rollout, resources):
        return found
    if resources.engine != "own":
        return []
    if resources.gpus == 0 or resources.gpus.is_integer():
        return []
    what = f"{resources.gpus:g} is a share of a GPU, and resources.engine own takes a whole one."
    return [Violation("resources.gpus", what, "Give 1, or set resources.engine to shared.")]


def ahead_violations(
    rollout: "RolloutConfig",
    rollout_correction: "RolloutCorrection",
    resources: "ResourcesConfig",
    trainer: "TrainerConfig",
) -> list[Violation]:
    """Return what sampling ahead of training needs and does not have."""
    if not rollout.ahead:
        return []
    found, back = [], "or rollout.ahead to 0."
    if trainer.backend == "tinker":
        what = f"{rollout.ahead} cannot be had with trainer.backend tinker: it samples the newest."
        return [Violation("rollout.ahead", what, "Set it to 0.")]
    if rollout_correction.kind == "none":
        what = (
            f"'none' leaves samples uncorrected that are {rollout.ahead} training step old "
            f"(rollout.ahead {rollout.ahead})."
        )
        found.append(Violation("rollout_correction.kind", what, f"Set it to tis or icepop, {back}"))
    if resources.engine == "shared":
        what = (
            "'shared' has trainer and engine take turns, and rollout.ahead "
            f"{rollout.ahead} has both work at a time."
        )
        found.append(Violation("resources.engine", what, f"Set it to own, {back}"))
    return found


def shared_engine_violations(
    rollout: "RolloutConfig",
    resources: "ResourcesConfig",
    policy: "PolicyConfig",
    trainer: "TrainerConfig",
) -> list[Violation]:
    """Return why trials cannot share an engine."""
    if resources.engine != "shared_by_sweep" or trainer.backend == "tinker":
        return []
    found, is_vllm = [], rollout.engine == "vllm"
    back, ranks = "or resources.engine to own.", ranks_of(resources)
    if policy.lora.rank == 0:
        what = "0 trains all weights, and an engine that trials share has one base for all."
        found.append(Violation("policy.lora.rank", what, f"Set it to a rank, such as 32, {back}"))
    if rollout.replicas > 1:
        what = f"{rollout.replicas} engines for each trial are not one engine for all trials."
        found.append(Violation("rollout.replicas", what, f"Set it to 1, {back}"))
    if is_vllm and rollout.vllm.tensor_parallel > 1:
        parts = rollout.vllm.tensor_parallel
        what = f"{parts} processes with a GPU each are not reserved for an engine of all trials."
        found.append(Violation("rollout.vllm.tensor_parallel", what, f"Set it to 1, {back}"))
    if is_vllm and rollout.vllm.sleep:
        what = "true frees the engine while its trial updates, and other trials sample then."
        found.append(Violation("rollout.vllm.sleep", what, f"Set it to false, {back}"))
    if ranks > 1:
        where = "resources.gpus" if resources.gpus else "resources.ranks"
        what = f"{ranks} ranks have devices of their own, where nothing is left to share."
        found.append(Violation(where, what, f"Set it to 1, {back}"))
    return found


def _replica_violations(rollout: "RolloutConfig", resources: "ResourcesConfig") -> list[Violation]:
    """Return why an engine cannot have the processes that it is to have."""
    replicas, parts, found = rollout.replicas, rollout.vllm.tensor_parallel, []
    if resources.engine == "shared":
        if replicas > 1:
            what = f"{replicas} engines cannot share the trial's process: each has its own."
            action = "Set it to 1, or resources.engine to own."
            found.append(Violation("rollout.replicas", what, action))
        if parts > 1 and rollout.engine == "vllm":
            what = f"{parts} processes would have to share the trial's GPU with the trainer."
            action = "Set it to 1, or resources.engine to own."
            found.append(Violation("rollout.vllm.tensor_parallel", what, action))
    if replicas > rollout.groups:
        what = f"{replicas} engines cannot share the {rollout.groups} groups of a step."
        action = "Set it to at most rollout.groups; a divisor of it shares them evenly."
        found.append(Violation("rollout.replicas", what, action))
    return found


def rank_violations(
    resources: "ResourcesConfig",
    trainer: "TrainerConfig",
    optim: "OptimConfig",
    loss: "LossTerms",
    attribution: "Attribution",
    rollout: "RolloutConfig",
    policy: "PolicyConfig",
) -> list[Violation]:
    """Return what several ranks cannot do, or cannot share."""
    ranks, found = ranks_of(resources), []
    if resources.ranks > 1 and resources.gpus not in (0, resources.ranks):
        what = f"{resources.ranks} ranks cannot have {resources.gpus:g} GPUs: each has one."
        found.append(Violation("resources.ranks", what, "Leave it at 1; GPUs say how many."))
    if ranks == 1:
        return found
    where, of = "resources.gpus" if resources.gpus else "resources.ranks", f"with {ranks} ranks"
    if trainer.backend == "tinker":
        what = f"{ranks} would train nothing: the service trains."
        found.append(Violation(where, what, "Set it to 1, or trainer.backend to torch."))
    if rollout.engine == "vllm" and resources.engine == "shared":
        what = (
            "'shared' has vLLM in the process of the first rank, where torch's group of processes "
            f"is then vLLM's and not that of {ranks} ranks."
        )
        found.append(Violation("resources.engine", what, "Set it to own."))
    if optim.mini_batch_size < ranks:
        what = f"{ranks} cannot share the {optim.mini_batch_size} rows of an optimiser step."
        found.append(Violation(where, what, f"Set optim.mini_batch_size to at least {ranks}."))
    if loss.kl_type in ("full", "full+"):
        what = f"{loss.kl_type!r} reads all weights of the head, which are in shards {of}."
        found.append(Violation("loss.kl_type", what, "Choose k2 or k3+."))
    if attribution.kind == "info_gain":
        what = f"'info_gain' reads the policy's caches of all rows, which no rank has {of}."
        found.append(Violation("attribution.kind", what, "Choose none, or adca."))
    if policy.lora.rank and policy.lora.dropout:
        what = f"{policy.lora.dropout:g} would drop other inputs for each number of ranks: by rank."
        found.append(Violation("policy.lora.dropout", what, f"Set it to 0.0, or {where} to 1."))
    return found
