import pytest
import torch

from rltune.maths.turns import (
    broadcast_turns,
    discounted_suffix_sum,
    has_turn,
    turn_count,
    turn_ends,
    turn_mean,
    turn_sum,
)

IDS = torch.tensor([[0, 1, -1]])
X = torch.zeros(1, 3)


def test_indices_are_an_int64_matrix_from_minus_one():
    with pytest.raises(
        ValueError,
        match=r"^turn_ids_NT has shape \(1, 3\) and dtype torch\.int32; expected one int64",
    ):
        turn_sum(X, IDS.int(), n_turns=2)
    with pytest.raises(ValueError, match=r"^turn_ids_NT has shape \(3,\) and dtype torch\.int64;"):
        turn_count(IDS[0])
    with pytest.raises(ValueError, match=r"^turn_ids_NT holds -2; turns count from 0, and a token"):
        turn_count(IDS - 1)


@pytest.mark.parametrize(
    "function",
    [
        lambda n: turn_sum(X, IDS, n_turns=n),
        lambda n: turn_mean(X, IDS, n_turns=n),
        lambda n: has_turn(IDS, n_turns=n),
        lambda n: broadcast_turns(X[:, :n], IDS),
    ],
)
def test_too_few_columns_are_refused_not_cut(function):
    with pytest.raises(
        ValueError,
        match=r"^n_turns is 1 and turn_ids_NT holds turn 1; n_turns must be at least 2\.",
    ):
        function(1)


def test_shapes_are_never_broadcast():
    with pytest.raises(ValueError, match=r"^shapes differ: values_NT \(1, 2\), turn_ids_NT \(1, 3"):
        turn_sum(X[:, :2], IDS, n_turns=2)
    with pytest.raises(ValueError, match=r"^shapes do not fit: values_NK \(2, 3\), turn_ids_NT \("):
        broadcast_turns(torch.zeros(2, 3), IDS)
    with pytest.raises(
        ValueError, match=r"^shapes differ: values_NK \(1, 3\), is_counted_NK \(1, "
    ):
        discounted_suffix_sum(X, X[:, :2].bool(), gamma=1.0)
    with pytest.raises(ValueError, match=r"^shapes differ: turn_ids_NT \(1, 3\), mask_NT \(1, 2\)"):
        turn_ends(IDS, X[:, :2].bool())


def test_masks_are_boolean_and_gamma_is_a_discount():
    with pytest.raises(ValueError, match=r"^mask_NT has dtype torch\.float32; a mask must be"):
        turn_ends(IDS, X)
    with pytest.raises(
        ValueError, match=r"^is_counted_NK has dtype torch\.float32; a mask must be"
    ):
        discounted_suffix_sum(X, X, gamma=1.0)
    for gamma in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=rf"^gamma is {gamma}; it must lie in \[0, 1\]\.$"):
            discounted_suffix_sum(X, X.bool(), gamma=gamma)


def test_a_sampled_token_is_in_a_turn():
    with pytest.raises(
        ValueError, match=r"^token 2 of row 0 is sampled but in no turn; give it a turn index\.$"
    ):
        turn_ends(IDS, torch.ones(1, 3, dtype=torch.bool))


def test_turns_stand_in_order():
    ids = torch.tensor([[0, 1, 2], [0, 2, 1]])
    with pytest.raises(
        ValueError,
        match=r"^token 2 of row 1 is of turn 1 but comes after turn 2; the turns of a row must",
    ):
        turn_ends(ids, torch.ones(2, 3, dtype=torch.bool))
