"""The memory of a trial on several ranks: that of its first one, which holds most."""

from dataclasses import replace

from rltune.forecast.memory import MemoryPlan, body_of, memory_plan
from rltune.forecast.model_shapes import Shape
from rltune.forecast.pass_memory import DTYPE_BYTES, FLOAT32
from rltune.spec.schema.run import ranks_of, samples_itself
from rltune.spec.schema.trial import TrialConfig


def rank_plan(config: TrialConfig, shape: Shape, *, parameters: int, trained: int) -> MemoryPlan:
    """Return what the first rank holds; on one rank, what the trial does.

    weights      P + W / N + E,  with P of the whole policy where the first rank samples itself,
                 W of all models, and E of the embeddings, which are whole while they compute and
                 while they go over to an engine; with gate.start_kl, P counts the start whole, too
    gradients, optimizer     1 / N of the trial's

    All else is as on one rank: a micro-batch has the same size, and of the layers in shards one at
    a time is whole.

    Args:
        config: Resolved config.
        shape: Of the model.
        parameters: Of the policy without adapters.
        trained: Those that training changes.

    """
    plan = memory_plan(config, shape, parameters=parameters, trained=trained)
    ranks = ranks_of(config.resources)
    if ranks == 1:
        return plan
    is_here = config.rollout.engine == "torch" and config.resources.engine == "shared"
    rounded = plan.rounded if config.resources.gpus and is_here else 0
    embeddings = FLOAT32 * shape.vocabulary * shape.hidden
    whole = _whole_policy(config, shape, parameters=parameters, trained=trained)
    return replace(
        plan,
        weights=whole + (plan.weights - rounded) // ranks + rounded + embeddings,
        gradients=plan.gradients // ranks,
        optimizer=plan.optimizer // ranks,
    )


def _whole_policy(config: TrialConfig, shape: Shape, *, parameters: int, trained: int) -> int:
    """Return the bytes of the policy that the first rank has beside its shards."""
    if not samples_itself(config.resources, config.gate, config.collapse):
        return 0
    policy = FLOAT32 * trained * (1 + config.gate.start_kl)
    if not config.policy.lora.rank:
        return policy
    width, body = DTYPE_BYTES[config.policy.dtype], body_of(shape, parameters)
    return policy + width * body + FLOAT32 * (parameters - body)
