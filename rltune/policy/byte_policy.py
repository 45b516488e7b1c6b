"""A small policy that reads any text, byte by byte, and knows how the answers of a task look.

It shows on two CPU cores that a task runs. Its shape is that of the shipped tiny policies; what it
is taught are a few gold answers, so that some of its own are right and training can begin.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from rltune.policy.load import Policy, assemble
from rltune.policy.tiny import PAD, small_model

END = "<end>"
_TOKENS_PER_STEP = 4096  # of a batch of demonstrations
_MAX_BATCH = 16


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A prompt with its right response."""

    system: str  # shown before the prompt; may be empty
    prompt: str
    response: str


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer: one token a byte of UTF-8, and one that ends a response."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())  # one for each of the 256 bytes
    vocabulary = {token: index for index, token in enumerate((PAD, END, *letters))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END)


def byte_policy(*, context: int, seed: int = 0) -> Policy:
    """Return an untrained policy.

    Args:
        context: Longest conversation, in bytes.
        seed: Of its weights; torch's global random state is set.

    """
    torch.manual_seed(seed)
    tokenizer = byte_tokenizer()
    model = small_model(len(tokenizer), ends=[tokenizer.eos_token_id], context=context)
    return assemble(model, tokenizer, template="auto", is_bare=False)


def teach(
    policy: Policy, shown: Sequence[Demonstration], *, steps: int, lr: float = 1e-3, seed: int = 0
) -> float:
    """Teach a policy the responses of demonstrations, drawn at random; their prompts are given.

    Args:
        policy: Is changed.
        shown: At least one.
        steps: Optimiser steps.
        lr: Learning rate of AdamW; it rises over the first tenth of the steps.
        seed: Of the order.

    Returns:
        The loss of the last step, in nats per token of a response.

    """
    rows = [_ids(policy, one) for one in shown]
    longest = max(len(prompt) + len(response) for prompt, response in rows)
    batches = _batches(rows, size=batch_size(longest), seed=seed)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=lr, betas=(0.9, 0.98))
    loss = torch.zeros(())
    for step, batch in zip(range(steps), batches, strict=False):
        optimizer.param_groups[0]["lr"] = lr * min(1.0, (step + 1) / (steps / 10))
        loss = _loss(policy, batch)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimizer.step()
    return float(loss.detach())


def batch_size(longest: int) -> int:
    """Return the demonstrations of a step, of which the longest has so many tokens."""
    return min(_MAX_BATCH, max(1, _TOKENS_PER_STEP // longest))


def mean_probability(policy: Policy, shown: Sequence[Demonstration]) -> float:
    """Return the probability of a demonstrated response, end included, as a mean over them."""
    total = 0.0
    with torch.no_grad():
        for one in shown:
            row = _ids(policy, one)
            total += float((-_loss(policy, [row]) * len(row[1])).exp())
    return total / len(shown)


def save(policy: Policy, folder: Path) -> None:
    """Write a policy as a folder that `policy.model` may name."""
    transformers_logging.disable_progress_bar()
    folder.mkdir(parents=True, exist_ok=True)
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)


_Row = tuple[list[int], list[int]]  # ids of a prompt, and of its response with the end


def _ids(policy: Policy, one: Demonstration) -> _Row:
    prompt = policy.renderer.first(one.system, one.prompt, "")
    response = policy.renderer.written(one.response)
    is_ended = bool(response) and response[-1] in policy.end_ids  # a tag of a tiny policy
    return prompt, response if is_ended else [*response, policy.end_ids[0]]


def _batches(rows: Sequence[_Row], *, size: int, seed: int) -> Iterator[list[_Row]]:
    rng = random.Random(seed)
    while True:
        yield rng.choices(rows, k=size)


def _loss(policy: Policy, batch: Sequence[_Row]) -> Tensor:
    """Return the mean cross-entropy of the tokens of the responses."""
    width = max(len(prompt) + len(response) for prompt, response in batch)
    ids = torch.full((len(batch), width), policy.pad_id)
    is_response = torch.zeros_like(ids, dtype=torch.bool)
    for row, (prompt, response) in enumerate(batch):
        end = len(prompt) + len(response)
        ids[row, :end] = torch.tensor([*prompt, *response])
        is_response[row, len(prompt) : end] = True
    logits = policy.model(input_ids=ids).logits[:, :-1]
    return torch.nn.functional.cross_entropy(
        logits[is_response[:, 1:]], ids[:, 1:][is_response[:, 1:]]
    )
