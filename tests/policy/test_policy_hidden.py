"""Hidden states before sampled tokens (D5): padding changes nothing. The critic on top of them."""

import pytest
import torch
from foreign_models import foreign, gpt2
from transformers import PhiConfig, PhiForCausalLM

from rltune.policy.load import weights_digest
from rltune.policy.logprobs import action_hidden, head_weight
from rltune.policy.value_head import ValueModel, frozen_copy


@pytest.fixture(params=["rope", "absolute"])
def model(request, small_policy):
    return small_policy().model if request.param == "rope" else gpt2(16)


def rows():
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, 16, (3, 12), generator=generator)
    mask = torch.rand(3, 12, generator=generator) < 0.5
    mask[:, 0] = False
    mask[:, -1] = True
    return ids, mask


def test_the_state_before_each_sampled_token(model):
    ids, mask = rows()
    whole = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    want = [whole[row, t - 1] for row, t in mask.nonzero().tolist()]
    torch.testing.assert_close(action_hidden(model.base_model, ids, mask), torch.stack(want))


@pytest.mark.parametrize("width", [1, 7, 64])
@pytest.mark.parametrize("filler", [0, 3, 9])  # pad, end token, any token
def test_right_padding_changes_nothing(model, width, filler):
    ids, mask = rows()
    padded = torch.cat([ids, torch.full((3, width), filler)], 1)
    padded_mask = torch.cat([mask, torch.zeros(3, width, dtype=torch.bool)], 1)
    got = action_hidden(model.base_model, padded, padded_mask)
    torch.testing.assert_close(
        got, action_hidden(model.base_model, ids, mask), rtol=1e-4, atol=1e-5
    )


def test_a_row_in_a_ragged_batch_equals_the_row_alone(model):
    ids, mask = rows()
    lengths = [12, 5, 8]
    for row, length in enumerate(lengths):
        mask[row, length:] = False
        mask[row, length - 1] = True
    together = action_hidden(model.base_model, ids, mask)
    alone = [
        action_hidden(model.base_model, ids[row : row + 1, :n], mask[row : row + 1, :n])
        for row, n in enumerate(lengths)
    ]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3", "mixtral", "gpt_oss", "gpt2"])
def test_gradients_are_those_of_the_whole_last_layer(name):
    """Its MLP computes only what is read; no weight sees a difference."""
    model, (ids, mask) = foreign(name), rows()
    backbone, draw = model.base_model, torch.Generator().manual_seed(1)
    grads = []
    for is_whole in (True, False):
        model.zero_grad()
        if is_whole:
            states = backbone(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
            hidden = states[mask[:, 1:]]
        else:
            hidden = action_hidden(backbone, ids, mask)
        weights = torch.randn(hidden.shape, generator=draw.manual_seed(1))
        (hidden * weights).sum().backward()
        grads.append([p.grad for p in backbone.parameters() if p.grad is not None])
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_sampled_token_without_context_is_refused(small_policy):
    ids, mask = rows()
    mask[1, 0] = True
    with pytest.raises(ValueError, match="first column has no context"):
        action_hidden(small_policy().model.base_model, ids, mask)


def test_a_head_with_a_bias_is_refused(small_policy):
    model = small_policy().model
    assert head_weight(model) is model.get_output_embeddings().weight
    phi = PhiForCausalLM(
        PhiConfig(
            vocab_size=16,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    with pytest.raises(ValueError, match="PhiForCausalLM has a bias in its head"):
        head_weight(phi)


@pytest.mark.parametrize("backbone", ["own", "policy"])
def test_values_start_at_zero_and_are_float32(small_policy, backbone):
    for dtype in ("float32", "bfloat16"):
        model = small_policy(dtype=dtype).model
        ids, mask = rows()
        hidden = action_hidden(model.base_model, ids, mask)
        values = ValueModel(model, backbone=backbone)(ids, mask, hidden)
        assert values.dtype is torch.float32
        assert values.tolist() == [0.0] * int(mask.sum())


@pytest.mark.parametrize("backbone", ["own", "policy"])
def test_the_critic_sends_nothing_to_the_policy(small_policy, backbone):
    policy = small_policy()
    critic = ValueModel(policy.model, backbone=backbone)
    with torch.no_grad():
        for parameter in critic.head.parameters():
            parameter.add_(0.1)
    ids, mask = rows()
    hidden = action_hidden(policy.model.base_model, ids, mask)
    torch.autograd.backward(critic(ids, mask, hidden).square().sum())
    assert all(p.grad is None for p in policy.model.parameters())
    assert all(p.grad is not None for p in critic.parameters())
    torch.optim.SGD(critic.parameters(), lr=0.1).step()
    assert weights_digest(policy.model) == policy.weights_sha256


def test_a_frozen_copy_does_not_follow(small_policy):
    policy = small_policy()
    reference = frozen_copy(policy.model)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(1.0)
    assert weights_digest(reference) == policy.weights_sha256
    assert not any(p.requires_grad for p in reference.parameters())
    assert all(p.requires_grad for p in policy.model.parameters())
