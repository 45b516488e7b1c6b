"""Rows as prefix trees: the numbers and the gradients of row by row, for every kind of model."""

import pytest
import torch
from exact_norms import double
from foreign_models import foreign
from hypothesis import given, settings
from hypothesis import strategies as st
from row_family import ROWS, batch_of

from rltune.policy.gradient_checkpointing import set_gradient_checkpointing
from rltune.policy.logprobs import action_hidden
from rltune.policy.lora import add_adapter
from rltune.policy.model_check import why_rows
from rltune.policy.precision import set_compute_dtype
from rltune.policy.row_tree import attention_cost, row_tree, rows_work, tree_work
from rltune.policy.value_head import ValueModel
from rltune.spec.schema.trial import LoraConfig
from rltune.trainer.ranks.scoring import score_actions

KINDS = ["llama", "mistral", "qwen3", "gemma3", "mixtral", "opt", "gpt2"]
IN_FLOAT64 = ["llama", "qwen3", pytest.param("opt", marks=pytest.mark.slow), "gpt2"]


def critic_of(model, backbone):
    critic = ValueModel(model, backbone=backbone)
    torch.manual_seed(1)
    for parameter in critic.head.parameters():
        torch.nn.init.normal_(parameter)
    return critic


def passed(model, critic, ids, mask, tree):
    """Return all that losses read of a pass, and the gradients of a weighted sum of it."""
    scores = score_actions(model, ids, mask, temperature=0.7, entropy="gradient", tree=tree)
    found = {
        "hidden": scores.hidden_MD,
        "logprobs": scores.tokens.logprobs_M,
        "entropy": scores.tokens.entropy_M,
        "values": critic(ids, mask, scores.hidden_MD, tree),
    }
    generator = torch.Generator().manual_seed(0)
    weights = {k: torch.randn(v.shape, generator=generator).to(v.dtype) for k, v in found.items()}
    sum((weights[name] * value).sum() for name, value in found.items()).backward()
    for module in (model, critic):
        for name, p in module.named_parameters():
            if p.grad is not None:
                found[f"gradient of {name}"] = p.grad
                p.grad = None
    return {name: value.detach() for name, value in found.items()}


def require_equal(got, want, tolerance):
    assert got.keys() == want.keys()
    for name, value in want.items():
        scale = float(value.abs().max()) if value.numel() else 0.0
        gap = float((got[name] - value).abs().max()) if value.numel() else 0.0
        assert gap <= tolerance * max(1.0, scale), f"{name} differs by {gap:.3g} of {scale:.3g}"


def compare(model, critic, ids, mask, tolerance):
    tree = row_tree(ids, mask)
    want = passed(model, critic, ids, mask, None)
    require_equal(passed(model, critic, ids, mask, tree), want, tolerance)


@pytest.mark.parametrize("name", IN_FLOAT64)
def test_any_family_of_rows_in_float64(name):
    model = double(foreign(name))
    critics = {backbone: critic_of(model, backbone) for backbone in ("own", "policy")}

    @settings(max_examples=25, deadline=None)
    @given(recipe=ROWS, backbone=st.sampled_from(list(critics)))
    def check(recipe, backbone):
        ids, mask = batch_of(recipe)
        if mask.any():
            compare(model, critics[backbone], ids, mask, 1e-10)

    check()


def shared():
    """Return rows of 40 tokens: two groups, forks at several places, equal rows, a prefix."""
    ids = torch.randint(4, 16, (8, 40), generator=torch.Generator().manual_seed(0))
    ids[1:4, :20], ids[2, :30], ids[3] = ids[0, :20], ids[0, :30], ids[0]
    ids[5:8, :25] = ids[4, :25]
    mask = torch.arange(40).expand(8, -1) % 5 > 1
    mask[7, 25:] = False
    return ids, mask & (torch.arange(40) > 8)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_model_in_float32(name):
    model = foreign(name)
    compare(model, critic_of(model, "own"), *shared(), 1e-5)


def test_another_attention_runs_rows():
    model = foreign("llama")
    assert why_rows(model, max_context=40) is None
    model.set_attn_implementation("eager")
    assert why_rows(model, max_context=40) == (
        "eager attention does not run the rows of a tree; sdpa does"
    )


@pytest.mark.parametrize("is_on", [False, True])
def test_adapters_and_gradient_checkpointing(is_on):
    model = foreign("llama")
    add_adapter(model, LoraConfig(rank=2), seed=0)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(p, std=0.1)
    set_gradient_checkpointing(model, is_on)
    compare(model, critic_of(model, "policy"), *shared(), 1e-5)


def test_bfloat16_within_its_rounding():
    model = foreign("llama")
    set_compute_dtype(model, "bfloat16")
    ids, mask = shared()
    tree = row_tree(ids, mask)
    rows, packed = (
        score_actions(model, ids, mask, temperature=1.0, tree=t).tokens.logprobs_M
        for t in (None, tree)
    )
    exact = score_actions(foreign("llama"), ids, mask, temperature=1.0).tokens.logprobs_M
    assert (packed - exact).abs().max() <= 2 * (rows - exact).abs().max()


def test_a_tree_that_sees_what_comes_later_differs():
    """The comparison can fail: by the places after one."""
    model = foreign("llama")
    ids, mask = shared()
    tree = row_tree(ids, mask)
    tree.tree.blocks[0].visible_RQK[0, 25] = True
    gap = action_hidden(model.base_model, ids, mask, tree=tree) - action_hidden(
        model.base_model, ids, mask
    )
    assert gap.abs().max() > 0.01


def test_equal_predictions_are_made_once():
    """Rows 5 6 7 8 and 5 6 7 9, all but the first token sampled: 6 and 7 once each."""
    ids = torch.tensor([[5, 6, 7, 8], [5, 6, 7, 9]])
    mask = torch.tensor([[False, True, True, True]] * 2)
    tree = row_tree(ids, mask)
    assert tree.prediction_M.tolist() == [0, 1, 2, 0, 1, 3]
    assert tree.first_U.tolist() == [0, 1, 2, 5]
    assert tree.tree.ids_P.tolist() == [5, 6, 7]  # the last token of a row is not read


def test_trees_are_less_work_where_rows_share_much_alone():
    ids, mask = shared()
    cost = attention_cost(foreign("llama"))
    work = rows_work(mask, pair_cost=cost)
    assert tree_work(row_tree(ids, mask), pair_cost=cost) < work
    apart = row_tree(torch.arange(8 * 40).view(8, 40), mask)
    assert tree_work(apart, pair_cost=cost) >= work


def test_the_cost_of_attention_by_hand():
    """Llama, 2 layers of 2 heads of 16: 2 x 2 x 2 x 16 multiplications a pair.

    A token: 2 layers x (4 x 32 x 32 + 3 x 32 x 64). GPT-2's layers are not Linear, and count too.
    """
    assert attention_cost(foreign("llama")) == 128 / (2 * (4 * 32**2 + 3 * 32 * 64))
    assert attention_cost(foreign("gpt2")) == 128 / (2 * 12 * 32**2)
