"""A small GGUF file: one Llama block, characters and one merge, ChatML's markup."""

import numpy as np

TEXTS = ["<|endoftext|>", "<|im_start|>", *map(chr, range(33, 127)), "Ġ", "Ċ", "ab"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|endoftext|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SIZE, INNER = 32, 64
_SHAPES = {
    "attn_norm": (SIZE,),
    "ffn_norm": (SIZE,),
    **{f"attn_{name}": (SIZE, SIZE) for name in ("q", "k", "v", "output")},
    "ffn_gate": (INNER, SIZE),
    "ffn_up": (INNER, SIZE),
    "ffn_down": (SIZE, INNER),
}


def write_gguf(path):
    """Write the file; return the tensors as they are in it."""
    from gguf import GGUFWriter

    generator = np.random.default_rng(0)
    tensors = {"token_embd.weight": (len(TEXTS), SIZE), "output_norm.weight": (SIZE,)}
    tensors |= {f"blk.0.{name}.weight": shape for name, shape in _SHAPES.items()}
    tensors = {
        name: generator.normal(0.5, 0.2, shape).astype(np.float32)
        for name, shape in tensors.items()
    }
    writer = GGUFWriter(str(path), "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(SIZE)
    writer.add_feed_forward_length(INNER)
    writer.add_block_count(1)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(SIZE // 2)
    writer.add_vocab_size(len(TEXTS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(TEXTS)
    writer.add_token_types([3, 3, *[1] * (len(TEXTS) - 2)])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    writer.add_chat_template(TEMPLATE)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors
