"""What a forward pass keeps for its backward pass, beside what torch really keeps."""

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from rltune.forecast.model_shapes import shape_of
from rltune.forecast.pass_memory import activation_bytes, cell_bytes, dropped_bytes
from rltune.policy.dropout import dropping
from rltune.policy.logprobs import action_hidden
from rltune.policy.lora import add_adapter
from rltune.policy.precision import set_compute_dtype
from rltune.policy.row_tree import row_tree
from rltune.spec.schema.trial import LoraConfig

QWEN = {
    "vocab_size": 100,
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}


def kept_per_token(model):
    """Return the bytes that a forward pass over 4 x 256 = 1024 tokens keeps, for each of them."""
    ids = torch.randint(100, (4, 257))
    return kept_in(model, ids, all_sampled(ids)) / 1024


def all_sampled(ids):
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[:, 0] = False
    return mask


def kept_in(model, ids, mask, tree=None):
    """Return the bytes that a forward pass keeps."""
    tokens = ids[:, 1:].numel() if tree is None else len(tree.tree.ids_P)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept = {}

    def note(tensor):
        is_cast_weight = (
            tensor.ndim == 2 and tensor.dtype == torch.bfloat16 and tokens not in tensor.shape
        )
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights and not is_cast_weight:
            kept[storage.data_ptr()] = (
                storage.nbytes(),
                tensor,
            )  # alive, so no address comes twice
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
    with hooks, dropping(model, seed=0):
        action_hidden(model.base_model, ids, mask, tree=tree)
    return sum(size for size, _ in kept.values())


@pytest.mark.parametrize(("dtype", "width"), [("float32", 4), ("bfloat16", 2)])
def test_activations_are_what_torch_keeps(dtype, width):
    config = Qwen2Config(**QWEN)
    model = Qwen2ForCausalLM(config).eval()
    set_compute_dtype(model, dtype)
    planned = activation_bytes(shape_of(config.to_dict()), width=width, is_recomputed=False)
    assert planned == pytest.approx(kept_per_token(model), rel=0.03)


@pytest.mark.parametrize(("dtype", "width"), [("float32", 4), ("bfloat16", 2)])
def test_dropped_inputs_are_what_torch_keeps_more(dtype, width):
    kept = []
    for dropout in (0.0, 0.1):
        model = Qwen2ForCausalLM(Qwen2Config(**QWEN)).eval()
        add_adapter(model, LoraConfig(rank=4, dropout=dropout), seed=0)
        set_compute_dtype(model, dtype)
        kept.append(kept_per_token(model))
    targets, shape = LoraConfig().targets, shape_of(QWEN)
    planned = dropped_bytes(shape, targets, width=width, is_recomputed=False)
    # 3 layers: q k v gate up of 128, o of 128, down of 512
    assert planned == 3 * (width + 1) * (6 * 128 + 512)
    assert planned == pytest.approx(kept[1] - kept[0], rel=0.2)


@pytest.mark.parametrize(("dtype", "width"), [("float32", 4), ("bfloat16", 2)])
def test_a_tree_keeps_keys_and_values_of_every_cell(dtype, width):
    """32 rows of 256 tokens, 240 of them in common: 240 + 32 x 16 places, 32 x 256 cells.

    The mask of the pairs, a number in each layer, comes on top; the plan leaves it out.
    """
    model = Qwen2ForCausalLM(Qwen2Config(**QWEN)).eval()
    set_compute_dtype(model, dtype)
    shape = shape_of(QWEN)
    ids = torch.randint(100, (1, 257)).repeat(32, 1)
    ids[:, 240] = torch.arange(32)
    ids[:, 241:] = torch.randint(100, (32, 16))
    places = (240 + 32 * 16) * activation_bytes(shape, width=width, is_recomputed=False)
    cells = 32 * 256 * cell_bytes(shape, width=width, is_recomputed=False)
    tree = row_tree(ids, all_sampled(ids))
    kept, pairs = kept_in(model, ids, all_sampled(ids), tree), 3 * width * tree.tree.n_pairs
    assert places + cells + pairs == pytest.approx(kept, rel=0.03)
    assert pairs < 0.1 * cells < 0.1 * kept
