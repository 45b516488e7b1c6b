"""A check that the engine serves the trainer's weights, up to what rounding hides.

The engine's logprobs of a few sampled tokens must equal the trainer's within a tolerance. That
finds an engine with entirely other weights, or with weights that training has long left behind.
It does not find one that is a step late: at a learning rate of 1e-6 a step moves a logprob by less
than two kernels differ in rounding.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from rltune.errors import DivergedError, StaleEngineError
from rltune.policy.load import Policy
from rltune.policy.precision import TOLERANCE, compute_dtype
from rltune.rollout.engine import Engine, Request, SamplingParams
from rltune_envs.base import Task, TextEnv

_PROBE_TOKENS = 4


def probe_prompt(policy: Policy, task: Task, env: TextEnv) -> list[int]:
    """Return the ids of a first prompt, on which every sync of a trial is checked."""
    observation = env.reset(seed=task.seed)
    return policy.renderer.first(env.system_prompt, observation, env.response_prefix)


@torch.no_grad()
def check_sync(
    engine: Engine,
    policy: Policy,
    prompt: list[int],
    *,
    score: Callable[[Tensor, Tensor], Tensor],
    name: str = "the rollout engine",
) -> float:
    """Sample a few tokens after a prompt; return their logprobs' largest gap to the trainer's.

    Args:
        engine: Has been synced.
        policy: Where its weights are, and how its numbers are rounded.
        prompt: Ids of a conversation so far.
        score: Returns the trainer's logprobs (M,) of the masked tokens of ids, both (1, T).
        name: As an error calls the engine.

    What passes can still be slightly stale: see the module.

    Raises:
        DivergedError: The trainer's own logprobs are not finite.
        StaleEngineError: The gap is above the tolerance of the policy's number format.

    """
    params = SamplingParams(1.0, _PROBE_TOKENS, len(prompt) + _PROBE_TOKENS)
    (completion,) = engine.generate([Request(0, prompt, seed=0)], params)
    device = policy.model.device
    ids = torch.tensor([[*prompt, *completion.token_ids]], device=device)
    mask = torch.zeros_like(ids, dtype=torch.bool)
    mask[0, len(prompt) :] = True
    ours = score(ids, mask)
    if not ours.isfinite().all():
        raise DivergedError(
            "the policy's logprobs are not finite after an update. "
            "The last checkpoint is kept; lower optim.lr, or tighten optim.grad_clip."
        )
    theirs = torch.tensor(completion.logprobs, device=device)
    gap = float((ours - theirs).abs().max())
    computed_in = compute_dtype(policy.model.base_model)
    limit = TOLERANCE[computed_in]
    if not gap <= limit:
        raise StaleEngineError(
            f"after sync {name}'s logprobs differ from the trainer's by {gap:.3g} "
            f"(allowed {limit:g} in {computed_in}): it serves other weights. "
            "Restart the trial; if it happens again, use rollout.engine: torch."
        )
    return gap
