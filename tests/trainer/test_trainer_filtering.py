"""Which groups of a step teach, and the batch without the others (B3, B8, B11), by hand."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from rollout_filters import filter_of

from rltune.rollout.tokens import to_batch
from rltune.trainer.filtering import FilterResult, apply_filter, filter_groups
from rltune.types import Episode, StopReason, Turn

METRICS = ("reward_variance", "reward_variance_mass", "entropy", "length")


def turn(logprobs, *, fault=""):
    n = len(logprobs)
    return Turn(
        (1,), (4,) * n, tuple(logprobs), StopReason.STOP, "", "", (), 0.0, True, 0, 0, fault
    )


def batch_of(*groups):
    """Return the rows of groups of (reward, logprobs of each turn); a fault is reward None."""
    episodes = []
    for group, members in enumerate(groups):
        for member, (reward, *turns) in enumerate(members):
            played = tuple(turn(own, fault="down" if reward is None else "") for own in turns)
            episodes.append(
                Episode("t", 0, group, member, played, True, False, False, reward or 0.0)
            )
    return to_batch(episodes, pad_id=0)


def scores(batch, groups, **config):
    chosen = filter_groups(batch, groups=groups, config=filter_of(**config))
    return chosen.scores_G.tolist()


TWO = batch_of(
    [(1.0, [-0.5, -1.5], [-1.0]), (0.0, [-2.0])],  # 3 tokens of 3 nats, 1 token of 2
    [(2.0, [-0.25, -0.25]), (2.0, [-1.0, -1.0])],
)


@pytest.mark.parametrize(
    ("metric", "ddof", "want"),
    [
        ("reward_variance", 1, [0.5**0.5, 0.0]),  # of [1, 0]: ss 0.5 over 1
        ("reward_variance", 0, [0.5, 0.0]),  # over 2, its root
        ("reward_variance_mass", 1, [0.5, 0.0]),
        ("reward_variance_mass", 0, [0.25, 0.0]),
        ("entropy", 1, [1.5, 0.625]),  # (1 + 2) / 2 and (0.25 + 1) / 2 nats a token
        ("entropy", 0, [1.5, 0.625]),
        ("length", 1, [2.0, 2.0]),  # (3 + 1) / 2 and (2 + 2) / 2 sampled tokens
        ("length", 0, [2.0, 2.0]),
    ],
)
def test_case_b11_each_metric_is_the_maths_of_its_name(metric, ddof, want):
    assert scores(TWO, 2, metric=metric, ddof=ddof) == pytest.approx(want, abs=1e-9)


def test_the_spread_is_that_of_the_sample_unless_it_is_said():
    assert scores(TWO, 2) == pytest.approx([0.5**0.5, 0.0])


def test_whole_groups_are_kept_and_counted():
    config = filter_of(include_zero=False, loss_scaling="sqrt")
    chosen = filter_groups(TWO, groups=2, config=config)
    assert chosen.keep_N.tolist() == [True, True, False, False]
    assert chosen.drop_N.tolist() == [False, False, True, True]
    assert (chosen.kept_ratio, chosen.zero_count) == (0.5, 1)
    assert chosen.scale == pytest.approx(0.5**0.5)
    assert not chosen.is_empty


@pytest.mark.parametrize(
    ("metric", "end", "kept"),
    [
        ("entropy", "largest", 0),
        ("entropy", "smallest", 1),
        ("length", "largest", 0),
        ("length", "smallest", 1),
    ],
)
def test_the_most_or_the_least_uncertain_or_long_group(metric, end, kept):
    uneven = batch_of([(0.0, [-1.0] * 3), (0.0, [-3.0])], [(0.0, [-0.5]), (0.0, [-1.0] * 2)])
    config = filter_of(metric=metric, type=end, strategy="top_k_abs", value=1.0)
    chosen = filter_groups(uneven, groups=2, config=config)
    assert np.flatnonzero(chosen.keep_N).tolist() == [2 * kept, 2 * kept + 1]
    assert chosen.zero_count == 0  # groups without reward spread have a length all the same


def test_ddof_can_decide_which_groups_share_the_mass():
    # a fault leaves two rewards, [0, 2], beside four, [0, 0, 0, 2]: squares 2 and 3 in sum
    pair = batch_of([(0.0, [-1.0]), (2.0, [-1.0]), (None, [-1.0]), (None, [-1.0])],
                    [(0.0, [-1.0])] * 3 + [(2.0, [-1.0])])  # fmt: skip
    # ddof 1: sqrt(2), 1; ddof 0: 1, sqrt(3/4)
    assert scores(pair, 2, ddof=1) == pytest.approx([2**0.5, 1.0])
    assert scores(pair, 2, ddof=0) == pytest.approx([1.0, 0.75**0.5])
    half = {"mode": "mass", "value": 0.57}  # shares .586 and .536 of the larger one, slack .005
    for ddof, kept in ((1, 1), (0, 2)):
        config = filter_of(ddof=ddof, **half)
        assert filter_groups(pair, groups=2, config=config).kept_ratio == kept / 2


@pytest.mark.parametrize("metric", METRICS)
def test_a_row_with_a_fault_has_no_part_in_the_score(metric):
    faulted = batch_of(
        [(1.0, [-0.5, -1.5], [-1.0]), (0.0, [-2.0]), (None, [-9.0] * 7)],
        [(2.0, [-0.25, -0.25]), (2.0, [-1.0, -1.0]), (None, [-9.0] * 7)],
    )
    assert scores(faulted, 2, metric=metric) == pytest.approx(scores(TWO, 2, metric=metric))


@pytest.mark.parametrize("metric", METRICS)
def test_what_is_not_sampled_does_not_reach_the_score(metric):
    """Engines report nothing there; garbage in rewards is caught elsewhere."""
    noisy = replace(TWO, ids_NT=TWO.ids_NT + 10**6, turn_ids_NT=TWO.turn_ids_NT + 7)
    assert scores(noisy, 2, metric=metric) == scores(TWO, 2, metric=metric)
    padded = TWO.ids_NT.shape[1] + 3
    wide = replace(
        TWO,
        **{
            name: torch.nn.functional.pad(getattr(TWO, name), (0, padded))
            for name in ("ids_NT", "action_mask_NT", "rollout_logprobs_NT")
        },
    )
    assert scores(wide, 2, metric=metric) == scores(TWO, 2, metric=metric)


@pytest.mark.parametrize("metric", METRICS)
def test_groups_move_with_their_scores(metric):
    swapped = TWO.rows(torch.tensor([3, 2, 1, 0]))
    assert scores(swapped, 2, metric=metric) == pytest.approx(scores(TWO, 2, metric=metric)[::-1])


@pytest.mark.parametrize("metric", METRICS)
def test_case_b3_a_single_rollout_has_no_spread_but_a_length_and_an_entropy(metric):
    ones = TWO.rows(torch.tensor([0, 3]))
    chosen = filter_groups(ones, groups=2, config=filter_of(metric=metric))
    assert chosen.keep_N.all()  # the filter is off
    want = {"entropy": [1.0, 1.0], "length": [3.0, 2.0]}.get(metric, [0.0, 0.0])
    assert chosen.scores_G.tolist() == pytest.approx(want)


def test_case_b8_an_episode_without_a_token_has_entropy_and_length_zero():
    silent = batch_of([(0.0,), (0.0,)], [(0.0, [-1.0]), (0.0,)])
    assert scores(silent, 2, metric="entropy") == [0.0, 0.5]
    config = filter_of(metric="length", include_zero=False)
    chosen = filter_groups(silent, groups=2, config=config)
    assert (chosen.keep_N.tolist(), chosen.zero_count) == ([False, False, True, True], 1)


def keeping(keep_N):
    """Return the result of a filter that dropped every other row."""
    keep_N = np.array(keep_N)
    return FilterResult(keep_N, ~keep_N, np.zeros(2), 0.5, 0, 1.0)


def test_drop_and_mask():
    keep = keeping([False, False, True, True])
    dropped = apply_filter(TWO, keep, on_drop="drop")
    assert dropped.group_N.tolist() == [1, 1]
    assert dropped.episode_N.tolist() == [2, 3]
    masked = apply_filter(TWO, keep, on_drop="mask")
    assert len(masked) == 4
    assert masked.action_mask_NT[:2].sum() == 0
    assert (masked.action_mask_NT[2:] == TWO.action_mask_NT[2:]).all()
    assert apply_filter(TWO, keeping([True] * 4), on_drop="drop") is TWO


def test_a_filter_that_drops_everything_is_empty_and_one_without_candidates_is_not():
    config = filter_of(include_zero=False)
    flat = batch_of([(1.0, [-1.0]), (1.0, [-1.0])])
    assert filter_groups(flat, groups=1, config=config).is_empty
    down = batch_of([(None, [-1.0]), (None, [-1.0])])
    chosen = filter_groups(down, groups=1, config=config)
    assert (chosen.is_empty, chosen.kept_ratio) == (False, 1.0)


def test_every_metric_goes_with_every_strategy():
    for metric, strategy, end in itertools.product(
        METRICS, ("top_p", "top_k", "top_k_abs", "min_p"), ("largest", "smallest")
    ):
        value = 1.0 if strategy == "top_k_abs" else 0.5
        config = filter_of(metric=metric, strategy=strategy, value=value, type=end)
        assert filter_groups(TWO, groups=2, config=config).keep_N.any()
