"""Small models of other kinds than the tiny policies, each over 16 tokens."""

import torch
import transformers

_SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}
_IDS = {"vocab_size": 16, "bos_token_id": None, "eos_token_id": 3, "pad_token_id": 0}
_HEADS = {"head_dim": 16}
_OLD = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 96}
_LINEAR = {
    f"linear_{name}": value
    for name, value in {
        "num_key_heads": 2,
        "num_value_heads": 2,
        "key_head_dim": 16,
        "value_head_dim": 16,
    }.items()
}
_EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 32}
_KINDS = {  # name -> class, and what its config has besides ids
    "llama": ("Llama", _SHAPE),
    "mistral": ("Mistral", {**_SHAPE, "sliding_window": 64}),
    "qwen3": ("Qwen3", {**_SHAPE, **_HEADS}),
    "gemma2": ("Gemma2", {**_SHAPE, **_HEADS}),
    "gemma3": ("Gemma3", {**_SHAPE, **_HEADS, "sliding_window": 64}),
    "mixtral": ("Mixtral", {**_SHAPE, "num_local_experts": 2}),
    "gpt_oss": ("GptOss", {**_SHAPE, **_HEADS, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "cohere": ("Cohere", _SHAPE),
    "granite": ("Granite", {**_SHAPE, "logits_scaling": 8.0}),
    "phi": ("Phi", _SHAPE),
    "bloom": ("Bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 2}),
    "opt": (
        "OPT",
        {
            "hidden_size": 32,
            "word_embed_proj_dim": 32,
            "ffn_dim": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "max_position_embeddings": 96,
        },
    ),
    "qwen3_next": (
        "Qwen3Next",
        {
            **{**_SHAPE, **_HEADS, **_LINEAR, **_EXPERTS},
            "shared_expert_intermediate_size": 32,
            "layer_types": ["linear_attention", "full_attention"],
        },
    ),
    "gpt2": ("GPT2", _OLD),
}
_NAMES = {"gemma3": "Gemma3TextConfig", "gpt2": "GPT2Config"}


def foreign(name):
    """Return an untrained model, with weights large enough to tell tokens apart."""
    kind, values = _KINDS[name]
    make_config = getattr(transformers, _NAMES.get(name, f"{kind}Config"))
    make_model = getattr(
        transformers, "GPT2LMHeadModel" if name == "gpt2" else f"{kind}ForCausalLM"
    )
    torch.manual_seed(0)
    model = make_model(make_config(**_IDS, **values)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(4)
    return model


def gpt2(vocabulary):
    """Return one with absolute positions, biases and layer norms."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=vocabulary, **_OLD, bos_token_id=0, eos_token_id=3)
    return transformers.GPT2LMHeadModel(config).eval()
