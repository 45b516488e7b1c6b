"""Information gain per turn: hand numbers, what counts, the best alias, and the receipts."""

import doctest
import math

import pytest
import torch
from cases import each

from rltune.signals import info_gain
from rltune.signals.info_gain import (
    IG_TYPES,
    InformationGain,
    best_alias,
    ig_metrics,
)

NAN, INF = math.nan, math.inf


def logs(*rows):
    return torch.tensor(rows, dtype=torch.float64).log()


def counts(*numbers):
    return torch.tensor(numbers)


def test_the_example_of_the_docstring():
    result = doctest.testmod(info_gain)
    assert (result.failed, result.attempted > 0) == (0, True)


def test_differences_of_probabilities_by_hand():
    # P = .1, .3, .8, .6: +.2, +.5, -.2; the answer turn has none
    gains = InformationGain()(logs([0.1, 0.3, 0.8, 0.6]), counts(4))
    assert gains.ig_NK[0].tolist() == pytest.approx([0.2, 0.5, -0.2, 0], abs=1e-12)
    assert gains.has_ig_NK.tolist() == [[True, True, True, False]]


def test_differences_of_logs_by_hand():
    # ln(.5/.25) = ln 2 = .693147; ln(.125/.5) = -2 ln 2
    gains = InformationGain(ig_type="log_prob_diff")(logs([0.25, 0.5, 0.125]), counts(3))
    assert gains.ig_NK[0].tolist() == pytest.approx([0.693147, -1.386294, 0], abs=1e-6)


def test_the_mean_of_token_logprobs_is_a_geometric_mean_of_probabilities():
    # two tokens of .5 and .02: mean log = log sqrt(.01), so P = .1; then .4 and .4: P = .4
    means = torch.stack([logs([0.5, 0.02])[0].mean(), logs([0.4, 0.4])[0].mean()])[None]
    assert InformationGain()(means, counts(2)).ig_NK[0, 0].item() == pytest.approx(0.3, abs=1e-12)


@pytest.mark.parametrize("ig_type", IG_TYPES)
@pytest.mark.parametrize("n_contexts", [0, 1])
def test_an_episode_of_one_turn_or_none_has_no_gain(ig_type, n_contexts):
    gains = InformationGain(ig_type=ig_type)(logs([0.1, 0.3]), counts(n_contexts))
    assert not gains.has_ig_NK.any()
    assert gains.ig_NK.tolist() == [[0, 0]]


def test_no_columns_at_all():
    gains = InformationGain()(torch.zeros(2, 0), counts(0, 0))
    assert gains.ig_NK.shape == gains.has_ig_NK.shape == (2, 0)


@each("rubbish", [NAN, 1e6, INF, -INF])
@each("ig_type", IG_TYPES)
def test_columns_past_a_rows_contexts_are_not_read(ig_type, rubbish):
    scores = logs([0.1, 0.3, 0.5], [0.2, 0.6, 0.5])
    gain = InformationGain(ig_type=ig_type)
    clean = gain(scores, counts(3, 2))
    scores[1, 2] = rubbish
    dirty = gain(scores, counts(3, 2))
    assert torch.equal(clean.ig_NK, dirty.ig_NK)
    assert torch.equal(clean.has_ig_NK, dirty.has_ig_NK)
    assert dirty.has_ig_NK.tolist() == [[True, True, False], [True, False, False]]


@pytest.mark.parametrize("bad", [NAN, 1e6])  # exp(1e6) is infinite
def test_a_context_without_a_score_takes_the_gains_on_both_sides_away(bad):
    scores = logs([0.1, 0.2, 0.4, 0.7, 0.9])
    scores[0, 2] = bad
    gains = InformationGain()(scores, counts(5))
    assert gains.has_ig_NK.tolist() == [[True, False, False, True, False]]
    assert gains.ig_NK[0].tolist() == pytest.approx([0.1, 0, 0, 0.2, 0], abs=1e-12)


def test_probability_zero_is_a_number_as_a_probability_only():
    scores = torch.tensor([[-INF, math.log(0.5)]])
    probability = InformationGain()(scores, counts(2))
    assert probability.has_ig_NK[0, 0]
    assert probability.ig_NK[0, 0].item() == pytest.approx(0.5)
    assert not InformationGain(ig_type="log_prob_diff")(scores, counts(2)).has_ig_NK.any()


@pytest.mark.parametrize("ig_type", IG_TYPES)
def test_a_gain_of_exactly_zero_counts(ig_type):
    gains = InformationGain(ig_type=ig_type)(logs([0.5, 0.5, 0.7]), counts(3))
    assert gains.ig_NK[0, 0].item() == 0
    assert gains.has_ig_NK[0, 0]


@pytest.mark.parametrize("ig_type", IG_TYPES)
def test_no_gradient_flows_and_rows_do_not_see_each_other(ig_type):
    scores = logs([0.1, 0.3, 0.5], [0.2, 0.6, 0.4]).requires_grad_()
    gain, n = InformationGain(ig_type=ig_type), counts(3, 3)
    together = gain(scores, n).ig_NK
    assert not together.requires_grad
    flipped = gain(scores.flip(0), n).ig_NK.flip(0)
    assert torch.equal(together, flipped)
    assert torch.equal(together[:1], gain(scores[:1], n[:1]).ig_NK)


def test_half_precision_is_differenced_in_float32():
    gains = InformationGain()(torch.tensor([[-0.5, -0.25]], dtype=torch.bfloat16), counts(2))
    want = math.exp(-0.25) - math.exp(-0.5)
    assert gains.ig_NK[0, 0].item() == pytest.approx(want, abs=1e-6)


@each(
    ("call", "message"),
    [
        (
            lambda: InformationGain(ig_type="prob"),
            r"^ig_type is 'prob'; choose prob_diff \(the paper's\) or log_prob_diff "
            r"\(the released code's\)\.$",
        ),
        (
            lambda: InformationGain()(torch.zeros(2, 3), counts(1)),
            r"^shapes do not fit: mean_logp_NC \(2, 3\), n_contexts_N \(1,\)\. "
            r"Expected \(N, C\) and \(N,\)\.$",
        ),
        (
            lambda: InformationGain()(torch.zeros(1, 3), torch.ones(1)),
            r"^n_contexts_N has dtype torch\.float32; expected int64 counts\.$",
        ),
        (
            lambda: InformationGain()(torch.zeros(2, 3), counts(3, 4)),
            r"^n_contexts_N\[1\] is 4; it must lie in 0 to 3, the columns of mean_logp_NC\.$",
        ),
        (
            lambda: best_alias(torch.zeros(1, 2), counts(0, 3)[None], n_contexts=3),
            r"^context_NJ holds 3; contexts count from 0 to 2, and -1 is no answer\.$",
        ),
        (
            lambda: best_alias(torch.zeros(1, 2), torch.zeros(1, 2), n_contexts=3),
            r"^context_NJ has dtype torch\.float32; expected int64 indices\.$",
        ),
        (
            lambda: best_alias(torch.zeros(2), counts(0, 0), n_contexts=1),
            r"^wrong rank: ",
        ),
    ],
)
def test_bad_inputs_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_best_alias_of_each_context():
    scores = torch.tensor([[-3.0, -1.0, -2.0, -5.0], [-4.0, 1e6, NAN, NAN]])
    contexts = torch.tensor([[0, 0, 1, 1], [0, -1, -1, -1]])
    best = best_alias(scores, contexts, n_contexts=3)
    # row 0: max(-3, -1) and max(-2, -5); nothing is scored at context 2, nor at row 1's last two
    torch.testing.assert_close(
        best, torch.tensor([[-1.0, -2, NAN], [-4, NAN, NAN]]), equal_nan=True
    )


def test_an_alias_that_is_nan_does_not_hide_the_others():
    scores, contexts = torch.tensor([[NAN, -2.0, NAN]]), torch.tensor([[0, 0, 1]])
    best = best_alias(scores, contexts, n_contexts=2)
    torch.testing.assert_close(best, torch.tensor([[-2.0, NAN]]), equal_nan=True)


def test_one_alias_per_context_is_the_identity_and_order_does_not_matter():
    scores = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    contexts = torch.arange(4).expand(3, 4)
    assert torch.equal(best_alias(scores, contexts, n_contexts=4), scores)
    order = [2, 0, 3, 1]
    assert torch.equal(best_alias(scores[:, order], contexts[:, order], n_contexts=4), scores)


def test_receipts_by_hand():
    gains = torch.tensor([[0.2, 0.6, NAN], [0.4, 1e6, 0.0]])
    has = torch.tensor([[True, True, False], [True, False, False]])
    metrics = ig_metrics(gains, has, counts(5, 5))
    # all: mean (.2 + .6 + .4) / 3 = .4, var (.04 + .04 + 0) / 3; turn 0: .2 and .4; turn 1: .6
    assert metrics == pytest.approx(
        {
            "ig/mean": 0.4,
            "ig/std": math.sqrt(0.08 / 3),
            "ig/turn_0/mean": 0.3,
            "ig/turn_0/std": 0.1,
            "ig/turn_1/mean": 0.6,
            "ig/turn_1/std": 0.0,
            "ig/singleton_ratio": 1 / 3,  # turn 1 has one gain of prompt 5
        },
        abs=1e-6,
    )


def test_the_same_turn_of_another_prompt_is_no_company():
    has = torch.ones(2, 1, dtype=torch.bool)
    metrics = ig_metrics(torch.zeros(2, 1), has, counts(0, 1))
    assert metrics["ig/singleton_ratio"] == 1


def test_receipts_of_no_gain_are_left_out():
    none = torch.zeros(2, 2, dtype=torch.bool)
    assert ig_metrics(torch.full((2, 2), NAN), none, counts(0, 0)) == {}


def test_masks_must_be_boolean():
    with pytest.raises(ValueError, match=r"^has_ig_NK has dtype torch\.float32"):
        ig_metrics(torch.zeros(1, 1), torch.zeros(1, 1), counts(0))
