"""What makes engines in a process of their own; that process imports some of it by name."""

import torch

from rltune.maths.alignment import empty_at
from rltune.rollout.engine_process import ProcessEngine
from rltune.rollout.scripted_engine import ScriptedEngine

END = 3


class NoModel:
    """Stands in for the policy of an engine that needs none."""

    end_ids = (END,)
    adapter_rank = 0


def script(request):
    """Answer by the prompt alone."""
    start = sum(request.prompt_ids) + len(request.prompt_ids)
    return [2 + (start * start + 5 * place) % 14 for place in range(12)]


def scripted_engine(model):
    """Make the scripted engine for a policy, as an engine's process does."""
    return ScriptedEngine(script, end_ids=model.end_ids, logprob=-1.0)


def adapted(policy, lora, *, seed):
    """Give a policy an adapter that changes what it samples: a fresh one adds nothing."""
    # Not above: an engine's process imports this file, and needs no transformers.
    from rltune.policy.lora import add_adapter, trained_parameters

    add_adapter(policy.model, lora, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in trained_parameters(policy.model).values():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return policy


@torch.no_grad()
def lying_as_in_a_file(policy):
    """Move a policy's weights to where those of a file lie: behind its header."""
    for parameter in policy.model.parameters():
        parameter.data = empty_at(56, parameter.shape, parameter.dtype).copy_(parameter)
    return policy


def process_engine(make, model, *, dtype=torch.float32, name="the rollout engine"):
    """Make an engine in a process of its own, without a GPU."""
    return ProcessEngine(make, model, dtype=dtype, gpu="", name=name)
