import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.maths.turns import (
    broadcast_turns,
    discounted_suffix_sum,
    has_turn,
    turn_count,
    turn_ends,
    turn_mean,
    turn_sum,
)

NAN = math.nan
# Row 0: turns 0 and 2 around an observation; turn 1 has no token. Row 1: turn 0 only, then padding.
IDS = torch.tensor([[0, 0, -1, 2, 2, 2], [-1, 0, -1, -1, -1, -1]])
X = torch.tensor([[1.0, 2, NAN, 3, 4, 8], [NAN, 7, NAN, NAN, math.inf, NAN]])


def test_count_is_the_largest_index_plus_one():
    assert turn_count(IDS) == 3
    assert turn_count(IDS[1:]) == 1


@pytest.mark.parametrize("ids", [torch.full((2, 3), -1), torch.zeros((0, 3)), torch.zeros((2, 0))])
def test_count_of_nothing_is_zero(ids):
    assert turn_count(ids.long()) == 0


def test_sum_mean_and_presence_by_hand():
    # row 0: 1 + 2 = 3 of 2 tokens; none; 3 + 4 + 8 = 15 of 3 tokens
    assert turn_sum(X, IDS, n_turns=3).tolist() == [[3, 0, 15], [7, 0, 0]]
    assert turn_mean(X, IDS, n_turns=3).tolist() == [[1.5, 0, 5], [7, 0, 0]]
    assert has_turn(IDS, n_turns=3).tolist() == [[True, False, True], [True, False, False]]


def test_more_columns_than_turns_are_empty():
    assert turn_sum(X, IDS, n_turns=5)[:, 3:].tolist() == [[0, 0], [0, 0]]
    assert has_turn(IDS, n_turns=5).shape == (2, 5)
    assert not has_turn(IDS, n_turns=4)[:, 3].any()


def test_no_turns_at_all():
    none = torch.full((2, 3), -1)
    assert turn_mean(torch.full((2, 3), NAN), none, n_turns=0).shape == (2, 0)
    assert broadcast_turns(torch.zeros(2, 0), none).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_neighbouring_turns_of_equal_values_stay_two_turns():
    ids, x = torch.tensor([[0, 0, 1, 1]]), torch.ones(1, 4)
    assert turn_sum(x, ids, n_turns=2).tolist() == [[2, 2]]


def test_turns_may_come_in_any_order_in_sums():
    assert turn_sum(torch.tensor([[1.0, 2, 4]]), torch.tensor([[1, 0, 1]]), n_turns=2).tolist() == [
        [2, 5]
    ]


def test_broadcast_by_hand_does_not_read_turns_without_tokens():
    values = torch.tensor([[5.0, NAN, -2], [9, NAN, NAN]])
    assert broadcast_turns(values, IDS).tolist() == [[5, 5, 0, -2, -2, -2], [0, 9, 0, 0, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float64])
def test_broadcast_keeps_the_dtype(dtype):
    spread = broadcast_turns(torch.ones(2, 3, dtype=dtype), IDS)
    assert spread.dtype == dtype
    assert torch.equal(spread.bool(), IDS >= 0)


@pytest.mark.parametrize("rubbish", [NAN, 1e6, -math.inf])
def test_case_b7_tokens_of_no_turn_reach_neither_value_nor_gradient(rubbish):
    clean, dirty = (X.where(IDS >= 0, fill).double().requires_grad_() for fill in (0.0, rubbish))
    for function in (turn_sum, turn_mean):
        outs = [function(x, IDS, n_turns=3) for x in (clean, dirty)]
        assert torch.equal(*outs)
        grads = [
            torch.autograd.grad(out.square().sum(), x)[0]
            for out, x in zip(outs, (clean, dirty), strict=True)
        ]
        assert torch.equal(*grads)
        assert not grads[1][IDS < 0].any()


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(-1, 3), min_size=5, max_size=5), min_size=1, max_size=4))
def test_broadcast_then_reduce_over_turns_is_the_identity(rows):
    ids = torch.tensor(rows)
    values = torch.randn(
        len(rows), 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    want = values.where(has_turn(ids, n_turns=4), 0)
    got = turn_mean(broadcast_turns(values, ids), ids, n_turns=4)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


def test_rows_permute():
    order = [1, 0]
    assert torch.equal(
        turn_mean(X[order], IDS[order], n_turns=3), turn_mean(X, IDS, n_turns=3)[order]
    )


def test_gradients():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 6, dtype=torch.float64, generator=generator, requires_grad=True)
    values = torch.randn(2, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    counted = torch.tensor([[True, False, True], [False, True, True]])
    assert torch.autograd.gradcheck(lambda x: turn_mean(x, IDS, n_turns=3), x)
    assert torch.autograd.gradcheck(lambda v: broadcast_turns(v, IDS), values)
    assert torch.autograd.gradcheck(lambda v: discounted_suffix_sum(v, counted, gamma=0.7), values)


def test_half_precision_is_summed_in_float32():
    # in bfloat16, 256 + 1 is 256
    x = torch.tensor([[256.0, 1.0]], dtype=torch.bfloat16)
    total = turn_sum(x, torch.zeros(1, 2, dtype=torch.int64), n_turns=1)
    assert total.dtype == torch.float32
    assert total.item() == 257


def test_ends_are_the_last_masked_in_tokens():
    mask = IDS >= 0
    assert turn_ends(IDS, mask).int().tolist() == [[0, 1, 0, 0, 0, 1], [0, 1, 0, 0, 0, 0]]
    mask[0, 5] = False  # the turn now ends one token earlier
    mask[1] = False
    assert turn_ends(IDS, mask).int().tolist() == [[0, 1, 0, 0, 1, 0], [0] * 6]


def test_ends_do_not_read_the_turn_of_a_masked_out_token():
    ids, mask = torch.tensor([[0, 9, 1, 0]]), torch.tensor([[True, False, True, False]])
    assert turn_ends(ids, mask).tolist() == [[True, False, True, False]]


def test_an_observation_inside_a_turn_does_not_end_it():
    ids = torch.tensor([[0, -1, 0]])
    assert turn_ends(ids, ids >= 0).tolist() == [[False, False, True]]


def test_ends_of_an_empty_matrix():
    empty = torch.zeros(2, 0, dtype=torch.int64)
    assert turn_ends(empty, empty.bool()).shape == (2, 0)


def test_suffix_sum_by_hand():
    # row 0: 4; turn 1 does not count and does not discount; 3 + .5 * 4 = 5
    values = torch.tensor([[3.0, NAN, 4, 8], [1, 2, 4, 1e6]])
    counted = torch.tensor([[True, False, True, False], [True, True, True, False]])
    # row 1: 4; 2 + .5 * 4 = 4; 1 + .5 * 4 = 3
    want = [[5, 0, 4, 0], [3, 4, 4, 0]]
    assert discounted_suffix_sum(values, counted, gamma=0.5).tolist() == want


def test_suffix_sum_limits():
    values, counted = torch.tensor([[3.0, 5, 4]]), torch.ones(1, 3, dtype=torch.bool)
    assert torch.equal(discounted_suffix_sum(values, counted, gamma=0.0), values)
    assert discounted_suffix_sum(values, counted, gamma=1.0).tolist() == [[12, 9, 4]]
    assert discounted_suffix_sum(values, ~counted, gamma=1.0).tolist() == [[0, 0, 0]]
    assert discounted_suffix_sum(values[:, :0], counted[:, :0], gamma=1.0).shape == (1, 0)


@settings(deadline=None)
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=6), st.floats(0, 1))
def test_suffix_sum_is_the_sum_of_its_definition_and_keeps_the_last_value(row, gamma):
    values = torch.tensor([row], dtype=torch.float64)
    got = discounted_suffix_sum(values, torch.ones_like(values).bool(), gamma=gamma)[0].tolist()
    want = [sum(gamma ** (m - k) * row[m] for m in range(k, len(row))) for k in range(len(row))]
    assert got == pytest.approx(want, abs=1e-9)
    assert got[-1] == row[-1]


def test_suffix_sum_of_rubbish_has_no_gradient():
    values = torch.tensor([[1.0, NAN, 2]], requires_grad=True)
    counted = torch.tensor([[True, False, True]])
    discounted_suffix_sum(values, counted, gamma=0.5).sum().backward()
    assert values.grad.tolist() == [[1, 0, 1.5]]  # 2 counts in A_2 and, halved, in A_0
