"""One case of the objective on any number of ranks: every rank imports this module."""

import os
import signal
import time
from pathlib import Path

import torch

from rltune.maths.streams import stream_seed
from rltune.policy.load import policy_of
from rltune.policy.lora import trained_parameters
from rltune.policy.serve import ServedPolicy
from rltune.rollout.tokens import TokenBatch
from rltune.trainer.credit.estimate import Credit
from rltune.trainer.objective import MiniBatch, update
from rltune.trainer.ranks.group import ALONE
from rltune.trainer.ranks.shard import like
from rltune.trainer.train_state import make_train_state
from rltune.trainer.update_step import _score, _update

LENGTHS = (40, 23, 31, 12, 36, 18, 0, 27)  # of eight rows in two groups; one has nothing to train


def rows(lengths=LENGTHS, *, group_size=4):
    """Return random rows whose groups share their first ten tokens."""
    draw = torch.Generator().manual_seed(0)
    n, width = len(lengths), max(lengths)
    ids_NT = torch.randint(2, 14, (n, width), generator=draw)
    group_N = torch.arange(n) // group_size
    ids_NT[:, :10] = ids_NT[group_N * group_size, :10]
    columns = torch.arange(width)
    mask_NT = (columns >= 8) & (columns < torch.tensor(lengths)[:, None]) & (columns % 6 != 5)
    turns_NT = torch.where(mask_NT, columns // 12, -1)
    zeros_NT = torch.zeros(n, width)
    logprobs_NT = torch.where(mask_NT, -torch.rand(n, width, generator=draw), 0.0)
    return TokenBatch(
        ids_NT, mask_NT, turns_NT, logprobs_NT, zeros_NT, zeros_NT, torch.zeros(n),
        torch.zeros(n, dtype=torch.bool), group_N, torch.arange(n), torch.ones(n, dtype=torch.bool),
    )  # fmt: skip


def trained(state, config, lengths):
    """Make a state on the ranks of another one, score rows and train on them.

    Returns:
        Everything that may not depend on the number of ranks, by name.

    """
    group = ALONE if state is None else state.group
    own = make_train_state(policy_of(config, Path.cwd(), device="cpu"), config, group)
    _drift(own)
    batch = rows(lengths)
    signals, *_ = _score(own, batch, config, step=1, gold=None)
    found = {
        name: tensor.clone()
        for name in ("ref_logp_NT", "values_NT", "entropy_NT")
        if (tensor := getattr(signals, name)) is not None
    }
    data = MiniBatch(batch, signals, _credit(batch, has_critic=own.critic is not None))
    sums = update(own, data, config, step=1, kl_coef=config.loss.kl_loss_coef)
    found |= {name: torch.tensor(value) for name, value in sums.items()}
    found["old_logp"] = signals.old_logp_NT
    for module in filter(None, (own.actor, own.critic)):
        for name, parameter in trained_parameters(module).items():
            key = f"{type(module).__name__} {name}".replace("ShardedModel model.", "actor ")
            key = key.replace("Qwen2ForCausalLM", "actor").replace("FSDP", "")
            found[f"gradient of {key}"] = group.whole(parameter.grad)
            found[f"weight of {key}"] = group.whole(parameter.detach())
    return found


@torch.no_grad()
def _drift(state):
    """Move the weights a little off the reference, on all ranks alike."""
    draw = torch.Generator().manual_seed(stream_seed(1, "drift"))
    for module in filter(None, (state.actor, state.critic)):
        for parameter in trained_parameters(module).values():
            noise = 0.02 * torch.randn(parameter.shape, generator=draw)
            parameter.add_(like(noise, parameter))


def _credit(batch, *, has_critic):
    draw = torch.Generator().manual_seed(2)
    mask_NT = batch.action_mask_NT
    advantages_NT, returns_NT = (
        torch.where(mask_NT, torch.randn(mask_NT.shape, generator=draw), 0.0) for _ in range(2)
    )
    return Credit(advantages_NT, returns_NT if has_critic else None)


def one_step(state, config):
    """Train a state on some rows, and bring the first rank's whole policy up to date."""
    batch = rows()
    signals, *_ = _score(state, batch, config, step=1, gold=None)
    data = MiniBatch(batch, signals, _credit(batch, has_critic=state.critic is not None))
    _update(state, data, config, step=1, kl_coef=0.1, is_shown=False, plan=None)


def handed_over(state, config):
    """Make a state on the ranks of another one, and train it for a step.

    Returns:
        What an engine takes over, by name, and how many numbers of the policy this rank holds.

    """
    own = make_train_state(policy_of(config, Path.cwd(), device="cpu"), config, state.group)
    one_step(own, config)
    is_asked = not own.is_copied or own.group.rank == 0  # a copy is put together by nobody
    served = ServedPolicy(own.policy, config.policy.lora).trained() if is_asked else ()
    taken = {name: tensor.clone() for name, tensor in served}
    parts = [getattr(p, "to_local", lambda p=p: p)() for p in own.policy.model.parameters()]
    return taken, sum(part.numel() for part in parts)


def fall(state, rank, how):
    """Have one rank fall while the others wait for it."""
    if state.group.rank == rank:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if how == "late":
            time.sleep(600)
        raise ValueError("a bad day")
    state.group.sum(torch.zeros(1))
