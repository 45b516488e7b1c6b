"""The memory of a trial on several ranks: that of its first one, which holds most."""

from dataclasses import replace

from rltune.forecast.memory import MemoryPlan, body_of, memory_plan
from rltune.forecast.model_shapes import Shape
from rltune.forecast.pass_memory import DTYPE_BYTES, FLOAT32
from rltune.spec.schema.run import ranks_of
from rltune.spec.schema.trial import TrialConfig


def rank_plan(config: TrialConfig, shape: Shape, *, parameters: int, trained: int) -> MemoryPlan:
    """Return what the first rank holds; on one rank, what the trial does.

    weights      P + W / N,  with P of the whole policy, which samples, and W of all models; with
                 gate.start_kl, P counts the start whole, too
    gradients, optimizer     1 / N of the trial's

    All else is as on one rank: a micro-batch has the same size, and of the weights in shards one
    block at a time is whole.

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
    width, body = DTYPE_BYTES[config.policy.dtype], body_of(shape, parameters)
    policy = FLOAT32 * trained * (1 + config.gate.start_kl)
    if config.policy.lora.rank:
        policy += width * body + FLOAT32 * (parameters - body)
    rounded = plan.rounded if config.resources.gpus and config.rollout.engine == "torch" else 0
    return replace(
        plan,
        weights=policy + (plan.weights - rounded) // ranks + rounded,
        gradients=plan.gradients // ranks,
        optimizer=plan.optimizer // ranks,
    )
