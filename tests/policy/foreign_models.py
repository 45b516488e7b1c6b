"""A small model of another kind than the tiny policies: absolute positions, biases, layer norms."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def gpt2(vocabulary):
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=96,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=3,
    )
    return GPT2LMHeadModel(config).eval()
