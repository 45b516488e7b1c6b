"""The work that rltune and a peer are both given: a model, prompts, shapes; and what a step counts.

Nothing of rltune is imported: the peer's own environment runs this, too.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch.optim.optimizer import register_optimizer_step_post_hook
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

CHARACTERS = "PFHG_#.O"
SPECIAL = ("<pad>", "<|im_start|>", "<|im_end|>", "<unk>", "<eos>")
VOCABULARY, HIDDEN, LAYERS, HEADS = 512, 128, 4, 4
LR, WEIGHT_DECAY, GRAD_CLIP = 1e-3, 0.01, 1.0


@dataclass(frozen=True, slots=True)
class Work:
    """Shape of one training step; lengths in tokens, one token a character of the prompt."""

    groups: int = 16
    group_size: int = 8
    prompt: int = 100
    turns: int = 1
    sampled: int = 16  # of each turn
    observation: int = 0  # after each turn but the last

    @property
    def rows(self) -> int:
        """Completions of a step."""
        return self.groups * self.group_size


WORKS = {
    "single-turn": Work(),
    "multi-turn": Work(prompt=40, turns=4, sampled=8, observation=16),
}


def prompt_of(seed: int, length: int) -> str:
    """Return `length` characters."""
    rng = random.Random(seed)
    return "".join(rng.choice(CHARACTERS) for _ in range(length))


def reward_of(response: str) -> float:
    """Return the number of ones in a response: any verifiable reward with a spread."""
    return float(response.count("1"))


def observation_of(response: str, length: int) -> str:
    """Return what the stand-in of an environment answers: it depends on the whole response."""
    return prompt_of(sum(map(ord, response)), length)


def make_model(folder: Path) -> None:
    """Write a randomly initialised Qwen2 of 0.92 M parameters with a token for each character."""
    words = [*SPECIAL, *map(chr, range(32, 127)), "\n"]
    words += [f"w{i}" for i in range(VOCABULARY - len(words))]
    table = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(table, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        intermediate_size=3 * HIDDEN,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=table["<|im_end|>"],
        pad_token_id=table["<pad>"],
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<|im_end|>",
        unk_token="<unk>",
        padding_side="left",
    ).save_pretrained(folder)


@dataclass
class Count:
    """What one step took, and its tokens."""

    seconds: float = 0.0
    cpu_s: float = 0.0  # of the process: what it takes beside others
    sampled: int = 0  # by the policy, end tokens included
    read: int = 0  # run through the model without a gradient: prefill, decoding, scoring
    trained: int = 0  # run through it with one
    optimizer_steps: int = 0


class Side:
    """One side's end of the line to the driver: waits for its turn, counts its step, and tells it.

    The process's standard output becomes its standard error, so that no library writes between.
    """

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self.count = Count()
        self._began = self._cpu_began = 0.0

    def watch(self, model: PreTrainedModel) -> None:
        """Count the tokens that go through a model, and optimiser steps."""

        def tokens(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            if torch.is_grad_enabled():
                self.count.trained += inputs[0].numel()
            else:
                self.count.read += inputs[0].numel()

        def step(*_: object) -> None:
            self.count.optimizer_steps += 1

        model.get_input_embeddings().register_forward_pre_hook(tokens)
        register_optimizer_step_post_hook(step)

    def begin(self) -> None:
        """Wait for the driver's line."""
        sys.stdin.readline()
        self.count = Count()
        self._began, self._cpu_began = time.perf_counter(), time.process_time()

    def end(self, sampled: Callable[[], int]) -> None:
        """Tell what the step took; the sampled tokens are counted after the clock has stopped."""
        self.count.seconds = time.perf_counter() - self._began
        self.count.cpu_s = time.process_time() - self._cpu_began
        self.count.sampled = sampled()
        print(json.dumps(asdict(self.count)), file=self._out, flush=True)
