"""A pass computes what it must: the last layer's MLP only where its output is read."""

import pytest
import torch
from foreign_models import foreign

from rltune.policy.decode import TransformersDecoder
from rltune.policy.logprobs import reading


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3", "mixtral", "gpt2", "opt"])
def test_the_same_logits_as_the_whole_model(name):
    model = foreign(name)
    decoder = TransformersDecoder(model, pad_id=0, end_ids=(3,))
    rows = [[5, 6, 7, 8, 9], [10, 4, 4]]
    with torch.no_grad():
        want = [model(input_ids=torch.tensor([row])).logits[0] for row in rows]
    cache = decoder.empty_cache()
    first = decoder.extend(cache, [rows[0][:3], rows[1][:1]], [0, 0])
    last = decoder.extend(cache, [rows[0][3:], rows[1][1:]], [3, 1])
    for row, (n, own) in enumerate(zip((3, 1), want, strict=True)):
        torch.testing.assert_close(first[row], own[n - 1], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(last[row], own[-1], rtol=1e-4, atol=1e-4)


def test_the_last_mlp_computes_one_token_of_a_row_and_is_left_as_it_was():
    model = foreign("llama")
    decoder = TransformersDecoder(model, pad_id=0, end_ids=(3,))
    seen = []
    for layer in model.model.layers:
        layer.mlp.act_fn.register_forward_hook(lambda _, given, out: seen.append(out.shape[:2]))
    decoder.extend(decoder.empty_cache(), [[5, 6, 7], [8, 9]], [0, 0])
    assert seen == [(2, 3), (1, 2)]
    with pytest.raises(RuntimeError), reading(model.model, torch.tensor([[True]])):
        raise RuntimeError
    model(input_ids=torch.tensor([[5, 6, 7]]))
    assert seen[2:] == [(1, 3), (1, 3)]
