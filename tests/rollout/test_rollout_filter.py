import math
from typing import get_args

import numpy as np
import pytest
from cases import each
from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.rollout.filter import METRICS, SPREADS, group_scores, loss_scale, select_groups
from rltune.spec.schema.rollout import FilterTerms

SOKOBAN = [5.5, 4.8, 4, 2.7, 0.25, 0.15, 0.1, 0]
BINARY = [0.516, 0.5, 0.479, 0.447, 0.403, 0.342, 0.25, 0]
LATE = [2.7, 0.2, 0.1, 0.1, 0, 0, 0, 0]
SHARES = [0.98, 0.95, 0.9, 0.8, 0.6, 0.4]
GOLDEN = [  # measured on the released code, include_zero false
    pytest.param(SOKOBAN, "softmax", [4, 3, 3, 2, 2, 1], id="sokoban-softmax"),
    pytest.param(SOKOBAN, "mass", [5, 4, 4, 3, 3, 2], id="sokoban-mass"),
    pytest.param(BINARY, "softmax", [7, 7, 7, 6, 4, 3], id="binary-softmax"),
    pytest.param(BINARY, "mass", [7, 7, 6, 5, 4, 3], id="binary-mass"),
    pytest.param(LATE, "softmax", [4, 4, 3, 1, 1, 1], id="late-softmax"),
    pytest.param(LATE, "mass", [4, 3, 2, 1, 1, 1], id="late-mass"),
]


def select(scores, **changes):
    base = {
        "strategy": "top_p",
        "value": 0.9,
        "mode": "mass",
        "kind": "largest",
        "include_zero": False,
    }
    return select_groups(np.array(scores, dtype=float), **{**base, **changes})


def kept(scores, **changes):
    return np.flatnonzero(select(scores, **changes)).tolist()


@each(("scores", "mode", "counts"), GOLDEN)
def test_golden_kept_counts(scores, mode, counts):
    assert [int(select(scores, mode=mode, value=p).sum()) for p in SHARES] == counts


@each("eps", [0.0016, 0.0085])
@each(("scores", "mode", "counts"), GOLDEN)
def test_golden_holds_in_the_documented_window_of_eps(scores, mode, counts, eps):
    assert [int(select(scores, mode=mode, value=p, eps=eps).sum()) for p in SHARES] == counts


def test_the_kept_groups_are_the_largest_wherever_they_stand():
    assert kept([0.15, 5.5, 0, 2.7, 4.8, 4], value=0.8) == [1, 4, 5]


@pytest.mark.parametrize("mode", ["softmax", "mass"])
def test_value_one_keeps_all_but_the_zeros(mode):
    assert kept(SOKOBAN, mode=mode, value=1.0) == [0, 1, 2, 3, 4, 5, 6]


@each("mode", ["softmax", "mass"])
@each("strategy", ["top_p", "top_k"])
@each("scores", [SOKOBAN, [0.0, 0.0, 0.0]])
def test_value_one_with_zeros_is_no_filter(scores, strategy, mode):
    assert select(scores, strategy=strategy, mode=mode, value=1.0, include_zero=True).all()


@each("strategy", ["top_p", "top_k", "top_k_abs", "min_p"])
@each("mode", ["softmax", "mass"])
@each("kind", ["largest", "smallest"])
@each("scores", [[0.0] * 8, [1e-10, 0, 1e-11], []])
def test_case_b8_all_dropped_is_an_outcome_not_an_error(strategy, mode, kind, scores):
    keep = select(scores, strategy=strategy, mode=mode, kind=kind, value=1.0)
    assert keep.dtype == np.bool_
    assert keep.shape == (len(scores),)
    assert not keep.any()


def test_case_b8_no_mass_at_all_keeps_none_even_with_zeros_as_candidates():
    assert kept([0, 0, 0], include_zero=True, value=0.9) == []


def test_include_zero_lets_zeros_into_softmax():
    # softmax([1, 0, 0]) = [.576, .212, .212]; .576 + .212 = .788 < .9
    assert kept([1, 0, 0], mode="softmax", include_zero=True) == [0, 1, 2]
    assert kept([1, 0, 0], mode="softmax", include_zero=False) == [0]


def test_zero_tolerance_is_an_argument():
    assert kept([1, 0.05], value=1.0, zero_tol=0.1) == [0]


@pytest.mark.parametrize(
    ("mode", "want"),
    [
        ("mass", [1, 2]),  # 1 + 2 of 7 = .43 >= .4
        ("softmax", [1]),  # softmax([-1, -2, -4]) = [.71, .26, .04]
    ],
)
def test_smallest_takes_from_the_other_end(mode, want):
    assert kept([4, 1, 2, 0], mode=mode, kind="smallest", value=0.4) == want


def test_ties_keep_their_order():
    # 64 groups: numpy's default sort happens to be stable for small arrays
    scores = [1, 2] * 32
    assert kept(scores, strategy="top_k_abs", value=5) == [1, 3, 5, 7, 9]
    assert kept(scores, strategy="top_k_abs", value=5, kind="smallest") == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(
    ("value", "scores", "want"),
    [
        (0.5, [3, 0, 2, 1], [0, 2]),  # of the original four groups
        (0.75, [3, 0, 0, 1], [0, 3]),  # three wanted, two left
        (0.01, [3, 4, 2, 1], [1]),  # at least one
    ],
)
def test_top_k_counts_from_the_original_groups(value, scores, want):
    assert kept(scores, strategy="top_k", value=value) == want


def test_top_k_share_is_not_cut_by_rounding():
    # 0.29 * 100 = 28.999999999999996
    assert select(np.arange(1, 101), strategy="top_k", value=0.29).sum() == 29


@pytest.mark.parametrize(("value", "count"), [(1, 1), (3, 3), (50, 7)])
def test_top_k_abs(value, count):
    assert select(SOKOBAN, strategy="top_k_abs", value=value).sum() == count


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        ("largest", [0, 1]),  # s >= .5 * 4
        ("smallest", [2, 3]),  # s <= .75 / .5 = 1.5
    ],
)
def test_min_p(kind, want):
    assert kept([4, 2, 1.5, 0.75, 0], strategy="min_p", kind=kind, value=0.5) == want


def test_case_b10_mass_does_not_see_the_reward_scale_and_softmax_does():
    rewards = np.array([[0, 1, 0, 1], [0, 0, 0, 1], [0.3, 0, 0, 0], [0.1, 0, 0, 0]])
    small = group_scores(rewards, metric="reward_variance")
    large = group_scores(10 * rewards, metric="reward_variance")
    for p in SHARES:
        assert kept(small, value=p) == kept(large, value=p)
    assert kept(small, value=0.9, mode="softmax") == [0, 1, 2, 3]
    assert kept(large, value=0.9, mode="softmax") == [0, 1]


def test_case_b11_variance_is_a_std_and_variance_mass_a_variance():
    # [0, 0, 1, 1]: ss = 1; ddof 1: var 1/3; ddof 0: var 1/4
    rewards = [[0, 0, 1, 1], [2, 2, 2, 2]]
    for metric, ddof, want in [
        ("reward_variance", 1, math.sqrt(1 / 3)),
        ("reward_variance", 0, 0.5),
        ("reward_variance_mass", 1, 1 / 3),
        ("reward_variance_mass", 0, 0.25),
    ]:
        scores = group_scores(rewards, metric=metric, ddof=ddof)
        assert scores.tolist() == pytest.approx([want, 0], abs=0, rel=1e-12)


def test_case_b11_mass_of_the_variance_is_not_mass_of_the_std():
    # std 3, 2, 2: 3 of 7 = .43; variance 9, 4, 4: 9 of 17 = .53
    assert kept([3, 2, 2], value=0.5) == [0, 1]
    assert kept([9, 4, 4], value=0.5) == [0]


def test_case_b11_entropy_and_length_are_means_and_need_no_spread():
    # 1 + 2 + 6 = 9 over 3; a group of equal values keeps its mean, and ddof has no part in it
    for metric in ("entropy", "length"):
        for ddof in (0, 1):
            scores = group_scores([[1, 2, 6], [4, 4, 4]], metric=metric, ddof=ddof)
            assert scores.tolist() == [3, 4]
        assert group_scores([[5.0], [7.0]], metric=metric).tolist() == [5, 7]
    assert set(METRICS) == {"reward_variance", "reward_variance_mass", "entropy", "length"}
    assert set(SPREADS) == {"reward_variance", "reward_variance_mass"}


def test_the_metrics_of_the_config_are_those_of_the_maths():
    annotation = FilterTerms.model_fields["metric"].annotation
    assert get_args(annotation) == tuple(METRICS)


@each("metric", list(METRICS))
@each("seed", [0, 1])
def test_scores_do_not_see_the_order_of_the_members(metric, seed):
    values = np.random.default_rng(seed).normal(size=(5, 6)) ** 2
    shuffled = values[:, np.random.default_rng(seed + 9).permutation(6)]
    want = group_scores(values, metric=metric)
    np.testing.assert_allclose(group_scores(shuffled, metric=metric), want, rtol=1e-12)


@pytest.mark.parametrize("metric", list(SPREADS))
def test_equal_rewards_score_exactly_zero(metric):
    assert group_scores([[0.1] * 3, [-0.3] * 3], metric=metric).tolist() == [0, 0]


@pytest.mark.parametrize("ddof", [0, 1])
def test_case_b3_a_group_of_one_is_a_config_error(ddof):
    message = (
        r"^the rollout filter needs at least 2 rollouts per group, got 1: .*Raise rollout\.gro"
    )
    with pytest.raises(ValueError, match=message):
        group_scores([[1.0], [0.0]], metric="reward_variance", ddof=ddof)


def test_nan_score_is_refused():
    with pytest.raises(ValueError, match=r"^score nan of group 1 is not a spread; .*group_size\.$"):
        select([1, math.nan])


@each(
    ("changes", "message"),
    [
        (
            {"strategy": "topp"},
            r"^strategy is 'topp'; choose one of top_p, top_k, top_k_abs, min_p\. "
            r"Did you mean 'top_p'\?$",
        ),
        ({"mode": "linear"}, r"^mode is 'linear'; choose one of softmax, mass\.$"),
        ({"kind": "big"}, r"^kind is 'big'; choose one of largest, smallest\.$"),
        ({"value": 0}, r"^value is 0; top_p needs a share in \(0, 1\]\.$"),
        (
            {"strategy": "min_p", "value": 1.5},
            r"^value is 1\.5; min_p needs a share in \(0, 1\]\.$",
        ),
        (
            {"strategy": "top_k_abs", "value": 0.5},
            r"^value is 0\.5; top_k_abs needs a whole number",
        ),
    ],
)
def test_selection_refusals(changes, message):
    with pytest.raises(ValueError, match=message):
        select(SOKOBAN, **changes)


def test_other_refusals():
    with pytest.raises(ValueError, match=r"^score -1\.0 of group 0 is not a spread;"):
        select([-1.0, 2])
    with pytest.raises(
        ValueError, match=r"^scores_G has shape \(1, 2\); expected one score per gro"
    ):
        select([[1.0, 2]])
    with pytest.raises(ValueError, match=r"^metric is 'std'; choose one of reward_variance, rewar"):
        group_scores([[0, 1]], metric="std")
    with pytest.raises(ValueError, match=r"^reward_variance: nan of group 0, member 1 is not f"):
        group_scores([[0, math.nan]], metric="reward_variance")
    with pytest.raises(ValueError, match=r"^entropy: inf of group 1, member 0 is not finite; c"):
        group_scores([[0.0], [math.inf]], metric="entropy")
    with pytest.raises(
        ValueError, match=r"^values_GM has shape \(2,\); expected \(groups, members"
    ):
        group_scores([0, 1], metric="reward_variance")
    with pytest.raises(ValueError, match=r"^ddof is 2; choose 0"):
        group_scores([[0, 1]], metric="reward_variance", ddof=2)


@pytest.mark.parametrize(("kind", "factor"), [("none", 1.0), ("linear", 0.25), ("sqrt", 0.5)])
def test_loss_scale(kind, factor):
    assert loss_scale(0.25, kind) == factor
    assert loss_scale(1.0, kind) == 1


def test_loss_scale_refusals():
    with pytest.raises(
        ValueError, match=r"^loss_scaling is 'log'; choose one of none, linear, sqr"
    ):
        loss_scale(0.5, "log")
    with pytest.raises(ValueError, match=r"^kept_ratio is 1\.5; it must lie in \[0, 1\]\.$"):
        loss_scale(1.5, "none")


@settings(deadline=None)
@given(
    scores=st.lists(st.integers(0, 50), min_size=1, max_size=10, unique=True),
    strategy=st.sampled_from(["top_p", "top_k", "min_p"]),
    mode=st.sampled_from(["softmax", "mass"]),
    kind=st.sampled_from(["largest", "smallest"]),
    value=st.floats(0.05, 1.0),
    random=st.randoms(use_true_random=False),
)
def test_the_selection_does_not_depend_on_the_order_of_the_groups(
    scores, strategy, mode, kind, value, random
):
    order = list(range(len(scores)))
    random.shuffle(order)
    changes = {"strategy": strategy, "mode": mode, "kind": kind, "value": value}
    keep = select(scores, **changes)
    assert select(np.array(scores)[order], **changes).tolist() == keep[order].tolist()
    assert keep.any() == any(score > 0 for score in scores)
