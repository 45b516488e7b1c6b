"""What `trainer.backend: tinker` cannot do, each with what would.

A service returns the logprobs of the tokens that it is given, at temperature 1. What needs the
vocabulary or hidden states cannot be computed from them, and its adapters are made its way.
"""

from typing import TYPE_CHECKING

from rltune.spec.errors import Violation
from rltune.spec.estimators import CRITIC_KINDS, ESTIMATOR_KINDS

if TYPE_CHECKING:
    from rltune.spec.schema.advantage import Advantage
    from rltune.spec.schema.attribution import Attribution
    from rltune.spec.schema.loss import LossTerms
    from rltune.spec.schema.rollout import RolloutConfig
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
    if resources.engine == "own":
        what = f"'own' would start nothing {_WITH}: the service samples."
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
