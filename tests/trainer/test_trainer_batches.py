"""How a batch is cut: by row or by group into mini-batches, by tokens into micro-batches."""

from itertools import pairwise, product

import pytest
import torch
from credit_cases import ANY, batch_of, make_episode, make_turn
from hypothesis import given
from hypothesis import strategies as st

from rltune.forecast.model_shapes import shape_of
from rltune.forecast.pass_memory import cell_share, token_budget
from rltune.trainer.batches.micro_batches import (
    Limit,
    MicroBatch,
    cut_batch,
    limit_of,
    micro_batches,
    pack,
    padding_share,
)
from rltune.trainer.batches.mini_batches import plan_scoring, plan_update


def batch_with(lengths, groups=None, faults=()):
    """Return rows of these lengths: a prompt token, then sampled ones."""
    groups = range(len(lengths)) if groups is None else groups
    episodes = [
        make_episode([make_turn(range(2, 1 + n), prompt=(1,))], group=group, reward=0.0)
        for n, group in zip(lengths, groups, strict=True)
    ]
    batch = batch_of(episodes)
    batch.action_mask_NT[list(faults)] = False
    return batch


def lists(parts):
    return [part.rows.tolist() for part in parts]


PACKS = [  # (sizes, tokens, rows, packs by hand); a pass costs tokens / 16
    pytest.param([3, 3, 3, 3], 6, None, [[0, 1], [2, 3]], id="two-fit"),
    # 3 x 20 + 2 = 62 beside 2 x 2 + 20 + 2 x 4 = 32 of 64 tokens
    pytest.param([2, 20, 2], 64, None, [[0, 2], [1]], id="a-long-one-does-not-pad-the-others"),
    # 3 x 3 + 4 = 13 beside 2 x 2 + 3 + 2 x 4 = 15
    pytest.param([2, 3, 2], 64, None, [[0, 2, 1]], id="a-pass-costs-more-than-that-padding"),
    pytest.param([9, 2, 8], 6, None, [[1], [2], [0]], id="too-long-is-alone"),
    pytest.param([1, 1, 1, 1], ANY, 3, [[0], [1, 2, 3]], id="rows"),
    pytest.param([], 6, None, [], id="nothing"),
]


@pytest.mark.parametrize(("sizes", "tokens", "rows", "packs"), PACKS)
def test_packs_by_hand(sizes, tokens, rows, packs):
    got = pack(torch.tensor(sizes, dtype=torch.int64), Limit(tokens, rows))
    assert [index.tolist() for index in got] == packs


def cost_of(packs, tokens):
    return sum(len(own) * max(own) + int(tokens / 16) for own in packs)


def fits(own, tokens, rows):
    return len(own) == 1 or (len(own) * max(own) <= tokens and len(own) <= (rows or len(own)))


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    tokens=st.integers(1, 120),
    rows=st.none() | st.integers(1, 6),
)
def test_no_other_cut_within_the_limit_costs_less(sizes, tokens, rows):
    packs = pack(torch.tensor(sizes), Limit(tokens, rows))
    assert sorted(torch.cat(packs).tolist()) == list(range(len(sizes)))
    got = [[sizes[i] for i in index.tolist()] for index in packs]
    assert [size for own in got for size in own] == sorted(sizes)
    assert all(fits(own, tokens, rows) for own in got)
    ways = []
    for cuts in product([False, True], repeat=len(sizes) - 1):
        places = [0, *(n for n, cut in enumerate(cuts, start=1) if cut), len(sizes)]
        way = [sorted(sizes)[a:b] for a, b in pairwise(places)]
        if all(fits(own, tokens, rows) for own in way):
            ways.append(cost_of(way, tokens))
    assert cost_of(got, tokens) == min(ways)


def test_a_row_without_a_token_to_train_on_is_not_computed():
    batch = batch_with([4, 6, 5, 3], faults=[1])
    assert lists(cut_batch(batch, Limit(ANY))) == [[3, 0, 2]]
    assert lists(micro_batches(batch, torch.tensor([1, 2]), Limit(ANY))) == [[2]]
    assert micro_batches(batch, torch.tensor([1]), Limit(ANY)) == ()


def test_padding_by_hand():
    batch = batch_with([4, 6, 5, 3])
    # Rows of 3 and 4, then 5 and 6: 1 of 8 and 1 of 12 tokens are padding
    pairs = (MicroBatch(torch.tensor([3, 0])), MicroBatch(torch.tensor([2, 1])))
    assert padding_share(batch, pairs) == pytest.approx(2 / 20)
    assert padding_share(batch, [MicroBatch(torch.arange(4))]) == pytest.approx(6 / 24)
    assert padding_share(batch, ()) == 0


def test_rows_that_share_prefixes_go_together_as_trees():
    """Two groups of two equal rows, of 6 tokens each, 5 of which are read."""
    batch = batch_with([6, 6, 6, 6], [0, 1, 0, 1])
    (part,) = cut_batch(batch, Limit(ANY, pair_cost=0.0))
    assert part.rows.tolist() == [0, 2, 1, 3]
    assert part.tree.tree.ids_P.tolist() == [1, 2, 3, 4, 5]
    assert all(own.tree is None for own in cut_batch(batch, Limit(ANY)))
    pairs = cut_batch(batch, Limit(ANY, 3, pair_cost=0.0))  # no group is cut, if three rows may go
    assert lists(pairs) == [[0, 2], [1, 3]]
    alone = cut_batch(batch, Limit(ANY, 1, pair_cost=0.0))
    assert [own.tree for own in alone] == [None] * 4
    assert [own.tree for own in cut_batch(batch, Limit(5, pair_cost=0.0))] != [None] * 4


def test_attention_in_a_tree_takes_memory_for_every_cell_of_a_row():
    """22 rows of one prompt, 41 tokens of each are read, the last one its own: 62 places.

    At a fifth of a token for each cell, attention of 12 rows takes 98.4 tokens, of 13 rows 106.6.
    """
    episodes = [
        make_episode([make_turn((50 + n, 3), prompt=range(4, 44))], group=0, reward=0.0)
        for n in range(22)
    ]
    parts = cut_batch(batch_of(episodes), Limit(100, pair_cost=0.0, cell_share=0.2))
    assert [len(part.rows) for part in parts] == [12, 10]
    assert all(part.tree is not None for part in parts)
    (whole,) = cut_batch(batch_of(episodes), Limit(100, pair_cost=0.0, cell_share=0.1))
    assert len(whole.rows) == 22


def test_rows_without_a_common_prefix_are_cut_by_length():
    episodes = [
        make_episode([make_turn(range(2, 1 + n), prompt=(first,))], group=0, reward=0.0)
        for first, n in enumerate([4, 9, 4, 9], start=20)
    ]
    parts = cut_batch(batch_of(episodes), Limit(18, pair_cost=0.01))
    assert lists(parts) == [[0, 2], [1, 3]]
    assert [own.tree for own in parts] == [None, None]


def plans(config, batch, *, step=1, limit=None):
    return plan_update(batch, config, step=step, limit=limit or Limit(ANY))


GROUPS = [0, 0, 0, 0, 7, 7, 7, 7, 3, 3, 3, 3]


def test_by_group_a_mini_batch_holds_whole_groups(make_config):
    config = make_config(
        rollout__groups=3, optim__mini_batch_size=4, optim__minibatch_by="group", optim__epochs=2
    )
    batch = batch_with([3] * 12, GROUPS)
    orders = []
    for step in range(1, 6):
        plan = plans(config, batch, step=step)
        assert [(own.epoch, own.nth) for own in plan] == [(e, n) for e in (0, 1) for n in (0, 1, 2)]
        for own in plan:
            assert len(own.rows) == 4
            assert len(set(batch.group_N[own.rows].tolist())) == 1
        for epoch in (plan[:3], plan[3:]):
            assert sorted(torch.cat([own.rows for own in epoch]).tolist()) == list(range(12))
        orders += [tuple(own.rows[0].item() for own in epoch) for epoch in (plan[:3], plan[3:])]
    assert len(set(orders)) > 2  # groups are shuffled


def test_by_row_a_mini_batch_mixes_groups(make_config):
    config = make_config(rollout__groups=3, optim__mini_batch_size=4)
    batch = batch_with([3] * 12, GROUPS)
    mixed = [len(set(batch.group_N[own.rows].tolist())) for own in plans(config, batch)]
    assert max(mixed) > 1


def test_groups_that_the_filter_dropped_leave_a_short_mini_batch(make_config):
    config = make_config(rollout__groups=4, optim__mini_batch_size=8, optim__minibatch_by="group")
    batch = batch_with([3] * 12, GROUPS)  # one of four groups was dropped
    assert [len(own.rows) for own in plans(config, batch)] == [8, 4]


def test_a_plan_follows_from_its_arguments(make_config):
    config = make_config(optim__epochs=2)
    batch = batch_with([3, 5, 4, 7, 6, 5, 3, 4], [0, 0, 0, 0, 1, 1, 1, 1])
    first, again, other = (plans(config, batch, step=step) for step in (4, 4, 5))
    for a, b in zip(first, again, strict=True):
        assert torch.equal(a.rows, b.rows)
        assert lists(a.parts) == lists(b.parts)
    assert any(not torch.equal(a.rows, b.rows) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("is_needed", [False, True])
def test_scoring_has_the_first_step_as_the_update_has_it(make_config, is_needed):
    config = make_config(advantage={"kind": "grpo", "shaping": {"gtpo_beta": 0.1 * is_needed}})
    batch = batch_with([3, 5, 4, 7, 6, 5, 3, 4], faults=[2])
    limit = Limit(10)
    plan = plans(config, batch, limit=limit)
    scoring, own = plan_scoring(batch, plan, config, limit), lists(plan[0].parts)
    assert lists(scoring.pending) == ([] if is_needed else own)
    assert lists(scoring.parts[: len(own)]) == own or not is_needed
    both = scoring.parts + scoring.pending
    assert sorted(torch.cat([part.rows for part in both]).tolist()) == [0, 1, 3, 4, 5, 6, 7]


def test_auto_follows_the_model_and_a_number_stands(make_config, small_policy):
    policy = small_policy()
    config = make_config(optim__micro_batch_size=None)
    shape = shape_of(policy.model.config.to_dict())
    assert limit_of(policy, config) == Limit(token_budget(config, shape))
    assert limit_of(policy, make_config(optim__tokens_per_micro_batch=64)) == Limit(64, 2)
    share = cell_share(config, shape)
    assert limit_of(policy, config, 0.1) == Limit(token_budget(config, shape), None, 0.1, share)
    assert 0.02 < share < 0.2
