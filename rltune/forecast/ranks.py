"""The memory of a trial on several ranks: that of its first one, which holds most."""

from dataclasses import replace

from rltune.forecast.memory import MemoryPlan, body_of, has_own_critic, memory_plan
from rltune.forecast.model_shapes import Shape
from rltune.forecast.pass_memory import DTYPE_BYTES, FLOAT32
from rltune.spec.schema.run import ranks_of
from rltune.spec.schema.trial import TrialConfig


def rank_plan(config: TrialConfig, shape: Shape, *, parameters: int, trained: int) -> MemoryPlan:
    """Return what the first rank holds; on one rank, what the trial does.

    weights      P + W / N + E,  with P of the whole policy where the first rank samples with it,
                 W of all models, each with shards of its own of what is frozen, and E of the
                 embeddings, which are whole while they compute and while they go over to an engine
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
    frozen = _frozen_bytes(config, shape, parameters)
    has_start = config.loss.use_kl_loss or config.gate.start_kl
    beside = has_own_critic(config) + has_start  # models that share it on one rank
    shards = (plan.weights - rounded + frozen * beside) // ranks
    whole = 0
    if config.resources.engine == "shared":
        whole = frozen + FLOAT32 * trained
    return replace(
        plan,
        weights=whole + shards + rounded + FLOAT32 * shape.vocabulary * shape.hidden,
        gradients=plan.gradients // ranks,
        optimizer=plan.optimizer // ranks,
    )


def _frozen_bytes(config: TrialConfig, shape: Shape, parameters: int) -> int:
    """Return the bytes of the weights under a policy's adapters."""
    if not config.policy.lora.rank:
        return 0
    width, body = DTYPE_BYTES[config.policy.dtype], body_of(shape, parameters)
    return width * body + FLOAT32 * (parameters - body)
