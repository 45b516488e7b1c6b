import math

import pytest
import torch

from rltune.losses.reduce import AGGREGATIONS, CONSTANT, aggregate, count_trained, side_divisor

LOSS = torch.tensor([[1.0, 2.0, 9.0], [6.0, math.nan, math.nan], [math.nan] * 3])
MASK = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0]], dtype=torch.bool)
COUNTS = {"n_tokens": 4, "n_sequences": 2, "mini_batch_size": 3, "sum_norm": 10.0}


@pytest.mark.parametrize(
    ("mode", "want"),
    [
        ("token-mean", 18 / 4),  # (1 + 2 + 9 + 6) / 4
        ("seq-mean-token-sum", 18 / 2),
        ("seq-mean-token-mean", 5.0),  # (12 / 3 + 6 / 1) / 2
        ("seq-mean-token-sum-norm", 18 / 3 / 10),
    ],
)
def test_by_hand(mode, want):
    assert aggregate(LOSS, MASK, mode=mode, **COUNTS).item() == pytest.approx(want)


def test_there_is_a_hand_number_for_every_mode():
    assert len(AGGREGATIONS) == 4


def test_rows_without_a_trained_token_are_not_counted():
    counts = count_trained(MASK)
    assert (counts.n_tokens, counts.n_sequences) == (4, 2)


@pytest.mark.parametrize("mode", AGGREGATIONS)
def test_an_empty_row_changes_nothing(mode):
    with_row = aggregate(LOSS, MASK, mode=mode, **COUNTS)
    assert torch.equal(aggregate(LOSS[:2], MASK[:2], mode=mode, **COUNTS), with_row)


@pytest.mark.parametrize("mode", AGGREGATIONS)
@pytest.mark.parametrize("n_micro", [2, 4, 8])
def test_case_c1_any_micro_batch_split_gives_the_same_gradient(mode, n_micro):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 7, 3, dtype=torch.float64, generator=generator)
    mask = torch.arange(7) < torch.tensor([7, 1, 3, 0, 5, 2, 7, 4])[:, None]  # ragged, one empty
    weight = torch.randn(3, dtype=torch.float64, generator=generator)
    counts = count_trained(mask)

    def gradient(n_chunks):
        w = weight.clone().requires_grad_()
        for x_part, mask_part in zip(x.chunk(n_chunks), mask.chunk(n_chunks), strict=True):
            loss = (x_part @ w).square()
            aggregate(
                loss,
                mask_part,
                mode=mode,
                n_tokens=counts.n_tokens,
                n_sequences=counts.n_sequences,
                mini_batch_size=8,
                sum_norm=7.0,
            ).backward()
        return w.grad

    torch.testing.assert_close(gradient(n_micro), gradient(1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n_kept", [32, 16, 4, 1])
def test_a_token_weighs_the_same_however_many_rows_are_left(n_kept):
    """Of 32 rows with 4 tokens each: 1 / (32 * 16); over the rows that are left it is 1 / 16 at 1.

    The sums over tokens of entropy, KL and value loss are divided by the same number.
    """
    mask = (torch.arange(32) < n_kept)[:, None].expand(32, 4)
    loss = torch.ones(32, 4, requires_grad=True)
    counts = count_trained(mask)
    constants = {"mini_batch_size": 32, "sum_norm": 16.0}
    numbers = {"n_tokens": counts.n_tokens, "n_sequences": counts.n_sequences, **constants}
    aggregate(loss, mask, mode=CONSTANT, **numbers).backward()
    assert torch.equal(loss.grad, mask / 512)
    assert side_divisor(CONSTANT, n_tokens=counts.n_tokens, **constants) == 512


@pytest.mark.parametrize("mode", AGGREGATIONS)
def test_what_entropy_kl_and_value_loss_are_divided_by(mode):
    divisor = side_divisor(mode, n_tokens=40, mini_batch_size=8, sum_norm=10.0)
    assert divisor == (80 if mode == CONSTANT else 40)


def test_gradient_outside_the_mask_is_exactly_zero():
    loss = LOSS.nan_to_num().requires_grad_()
    aggregate(loss, MASK, mode="token-mean", **COUNTS).backward()
    assert torch.equal(loss.grad, MASK * 0.25)


def test_refusals():
    with pytest.raises(
        ValueError, match=r"^'mean' is not an aggregation\. Choose one of token-mean, s"
    ):
        aggregate(LOSS, MASK, mode="mean", **COUNTS)
    for name in COUNTS:
        with pytest.raises(
            ValueError, match=rf"^{name} is 0; it must be positive\. Skip a mini-batch"
        ):
            aggregate(LOSS, MASK, mode="token-mean", **{**COUNTS, name: 0})
    with pytest.raises(ValueError, match=r"^shapes differ: loss_BT \(3, 3\), mask_BT \(2, 3\)\."):
        aggregate(LOSS, MASK[:2], mode="token-mean", **COUNTS)
    with pytest.raises(
        ValueError, match=r"^mask has dtype torch\.float32; a mask must be torch\.bool"
    ):
        aggregate(LOSS, LOSS, mode="token-mean", **COUNTS)
