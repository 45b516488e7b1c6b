import math

import pytest
import torch

from rltune.advantages.adca import adca, alpha_at

# MATHS 7, alpha .1, one group: trajectory 0 has R=1, flags G,G,B; trajectory 1 R=0, flags B,G.
GOLDENS = [
    pytest.param({}, [[1.050709, 0.966194, 0.881678], [-1.033806, -0.915485, 0]], id="decouple"),
    pytest.param(
        {"fusion": "all_steps"},
        [[3.050709, 1.966194, 0.881678], [-2.033806, -0.915485, 0]],
        id="all-steps",
    ),
    pytest.param(
        {"scope": "flat"}, [[1.040825, 0.959175, 0.877526], [-1.040825, -0.918350, 0]], id="flat"
    ),
    pytest.param({"normalize": False}, [[1.02, 1.00, 0.98], [-1.00, -0.98, 0]], id="no-z-score"),
    pytest.param(
        {"length_normalize": True},
        [[0.606627, 0.557832, 0.509037], [-0.731011, -0.647345, 0]],
        id="length-normalised",
    ),
    pytest.param(
        {"scheme": "allocation"},
        [[1.253128, 1.144206, 1.035285], [-1.168752, -1.016875, 0]],
        id="allocation",
    ),
    pytest.param(  # reference/adca_textpolicy.md A9
        {"scheme": "allocation", "scope": "flat"},
        [[1.209087, 1.114048, 1.019008], [-1.209087, -1.034848, 0]],
        id="allocation-flat",
    ),
]


def batch(flags, rewards, *, judged=None, groups=None, dtype=torch.float64):
    """One row per trajectory; its number of flags is its number of turns."""
    width = max(map(len, flags))
    rewards_N = torch.tensor(rewards, dtype=dtype)
    return {
        "flags_NK": torch.tensor([[*f, *[-1] * (width - len(f))] for f in flags]).to(torch.int8),
        "is_judged_N": torch.tensor(judged or [True] * len(flags)),
        "is_turn_NK": torch.tensor([[k < len(f) for k in range(width)] for f in flags]).bool(),
        "outcome_N": rewards_N,
        "is_success_N": rewards_N > 0.5,
        "group_N": torch.tensor(groups or [0] * len(flags)),
    }


X = {"flags": [[1, 1, 0], [0, 1]], "rewards": [1, 0]}


def rows(inputs, **numbers):
    return adca(**inputs, **numbers).advantages_NK


def listed(got_NK):
    """The rows without the 1e-12 that is added to every standard deviation."""
    return [[round(value, 9) for value in row] for row in got_NK.tolist()]


@pytest.mark.parametrize(("numbers", "want"), GOLDENS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_goldens(numbers, want, dtype):
    got = rows(batch(**X, dtype=dtype), alpha=0.1, **numbers)
    assert got.dtype == dtype
    torch.testing.assert_close(got, torch.tensor(want, dtype=dtype), rtol=0, atol=1e-6)


def test_equal_outcomes_teach_when_flags_differ():
    # raw .2 -.2 / .2 .2: mu .1, var (.01 + .09 + .01 + .01) / 4 = .03; z = .57735, -1.73205
    # decouple: .1 (.57735 - 1.73205) = -.11547, then -.173205; 2 * .057735, .057735
    got = rows(batch([[1, 0], [1, 1]], [1, 1]), alpha=0.1)
    want = [[-0.11547, -0.173205], [0.11547, 0.057735]]
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), rtol=0, atol=1e-5)
    got = rows(batch([[1, 0], [1, 1]], [1, 1]), alpha=0.1, scheme="allocation")
    want = [[0, -0.141421], [0, 0]]  # shares 1/1.2, .2/1.2 / .5, .5: z = sqrt2, -sqrt2 / 0, 0
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), rtol=0, atol=1e-5)


@pytest.mark.parametrize("scheme", ["decouple", "allocation"])
@pytest.mark.parametrize("scope", ["trajectory", "flat"])
def test_equal_flags_and_outcomes_are_exactly_zero(scheme, scope):
    inputs = batch([[1, 1, 1]] * 3, [0.1, 0.1, 0.1], dtype=torch.float32)
    assert rows(inputs, scheme=scheme, scope=scope).tolist() == [[0] * 3] * 3


def test_alone_in_its_group():
    # o = 0; z = 1, -1: .1 (1 - 1) = 0, then -.1
    got = rows(batch([[1, 0]], [1]), alpha=0.1)
    assert got[0].tolist() == pytest.approx([0, -0.1], abs=1e-7)


def test_without_alpha_only_the_outcome_is_left():
    inputs = batch(**X)
    assert listed(rows(inputs, alpha=0)) == [[1, 1, 1], [-1, -1, 0]]
    assert listed(rows(inputs, alpha=0, fusion="all_steps")) == [[3, 2, 1], [-2, -1, 0]]


def test_fix_base_cancels_under_the_z_score_and_only_there():
    inputs = batch(**X)
    torch.testing.assert_close(
        rows(inputs, fix_base=0.2), rows(inputs, fix_base=5.0), rtol=0, atol=1e-6
    )
    # +.1 * 5 * (1 + 1 - 1) + 1
    assert rows(inputs, fix_base=5.0, normalize=False)[0, 0].item() == pytest.approx(1.5)


@pytest.mark.parametrize("scheme", ["decouple", "allocation"])
@pytest.mark.parametrize("scope", ["trajectory", "flat"])
def test_an_unjudged_trajectory_keeps_its_outcome_and_is_in_no_step_statistics(scheme, scope):
    """The original pads its flags with GOOD, which moves the others: .865836 for .929289 here."""
    both = batch([[1, 1, 0], [0, 1]], [1, 0], judged=[True, False])
    got = rows(both, scheme=scheme, scope=scope)
    assert listed(got)[1] == [-1, -1, 0]
    alone = batch([[1, 1, 0]], [1])
    alone["outcome_advantage_N"] = torch.ones(1, dtype=torch.float64)
    torch.testing.assert_close(got[:1], rows(alone, scheme=scheme, scope=scope), rtol=0, atol=1e-9)
    if scheme == "decouple":  # z = 1/sqrt2, 1/sqrt2, -sqrt2
        assert got[0].tolist() == pytest.approx([1, 0.9292893, 0.8585786], abs=1e-6)


def test_nobody_judged_is_the_plain_outcome():
    inputs = batch(**X, judged=[False, False])
    assert listed(rows(inputs)) == [[1, 1, 1], [-1, -1, 0]]
    assert adca(**inputs).metrics["adca/judged_rate"] == 0


def test_an_outcome_advantage_of_another_estimator():
    inputs = batch(**X)
    given = torch.tensor([3.0, -1.0])
    got = rows(inputs, alpha=0, outcome_advantage_N=given)
    assert got.tolist() == [[3, 3, 3], [-1, -1, 0]]
    assert got.dtype == torch.float32


@pytest.mark.parametrize("numbers", [{}, {"scheme": "allocation"}, {"scope": "flat"}])
def test_groups_do_not_see_each_other_and_rows_permute(numbers):
    flags = [[1, 0], [0, 0, 1], [1], [0, 1], [1, 1]]
    inputs = batch(flags, [1, 0, 0.3, 1, 0], groups=[4, 4, 4, 9, 9])
    whole = rows(inputs, **numbers)
    order = torch.tensor([3, 1, 4, 0, 2])
    shuffled = rows({name: value[order] for name, value in inputs.items()}, **numbers)
    torch.testing.assert_close(shuffled, whole[order], rtol=0, atol=1e-12)
    one = rows({name: value[3:] for name, value in inputs.items()}, **numbers)
    torch.testing.assert_close(one, whole[3:], rtol=0, atol=1e-12)


@pytest.mark.parametrize("rubbish", [-1, 0, 1, 99])
@pytest.mark.parametrize("scheme", ["decouple", "allocation"])
def test_flags_of_no_turn_and_of_unjudged_rows_never_matter(rubbish, scheme):
    inputs = batch([[1, 1, 0], [0, 1], [1, 0]], [1, 0, 1], judged=[True, True, False])
    clean = rows(inputs, scheme=scheme)
    inputs["flags_NK"][1, 2] = rubbish
    inputs["flags_NK"][2] = rubbish
    assert torch.equal(rows(inputs, scheme=scheme), clean)


def test_boolean_flags_are_the_same():
    inputs = batch(**X)
    as_bool = {**inputs, "flags_NK": inputs["flags_NK"] == 1}
    assert torch.equal(rows(as_bool), rows(inputs))


def test_a_trajectory_without_turns_is_in_the_outcome_statistics_only():
    inputs = batch([[1, 0], []], [1, 0])
    assert listed(rows(inputs, alpha=0)) == [[1, 1], [0, 0]]
    assert rows(batch([[]], [1])).shape == (1, 0)


def test_alpha_at():
    cosine = {"alpha": 0.1, "alpha_min": 0.02, "decay_steps": 100, "kind": "cosine"}
    # .02 + .08 / 2 * (1 + cos(pi / 3) = 1.5) at step 33.3...; halves at 50
    assert alpha_at(0, **cosine) == pytest.approx(0.1)
    assert alpha_at(50, **cosine) == pytest.approx(0.06)
    assert alpha_at(25, **cosine) == pytest.approx(0.02 + 0.04 * (1 + math.sqrt(0.5)))
    assert alpha_at(100, **cosine) == pytest.approx(0.02)
    assert alpha_at(1000, **cosine) == pytest.approx(0.02)
    assert alpha_at(1000, alpha=0.3) == 0.3


REFUSED = [
    ({"scheme": "both"}, r"^scheme is 'both'; choose one of decouple, allocation\.$"),
    ({"fusion": "only_prm"}, r"^fusion is 'only_prm'; choose one of last_step, all_steps\.$"),
    ({"scope": "batch"}, r"^scope is 'batch'; choose one of trajectory, flat\.$"),
    ({"alpha": -0.1}, r"^alpha is -0\.1; it must be 0 or more, and finite\.$"),
    ({"fix_base": 0.0}, r"^fix_base is 0\.0; it must be above 0 and finite\.$"),
    (
        {"scheme": "allocation", "bad_in_success_weight": -1.0},
        r"^bad_in_success_weight is -1\.0; it must be 0 or more, and finite\.$",
    ),
    ({"flags_NK": torch.zeros(2, 3)}, r"^flags_NK has dtype torch\.float32; expected bool or in"),
    ({"is_judged_N": torch.ones(2)}, r"^is_judged_N has dtype torch\.float32; a mask must be"),
    ({"is_success_N": torch.ones(2)}, r"^is_success_N has dtype torch\.float32; a mask must be"),
    ({"group_N": torch.zeros(3).long()}, r"^group_N has shape \(3,\); expected one entry for each"),
    ({"outcome_N": torch.zeros(2, 1)}, r"^outcome_N has shape \(2, 1\); expected one entry for"),
    ({"outcome_N": torch.tensor([0, math.nan])}, r"^rewards_N\[1\] is not finite; mask the traj"),
    (
        {"flags_NK": torch.tensor([[1, -1, 0], [0, 1, -1]], dtype=torch.int8)},
        r"^flag -1 of turn 1 of trajectory 0 is neither 1 \(GOOD\) nor 0 \(BAD\)\. A trajectory w",
    ),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_refusals(change, message):
    with pytest.raises(ValueError, match=message):
        adca(**{**batch(**X), **change})


def test_alpha_at_refusals():
    with pytest.raises(ValueError, match=r"^kind is 'linear'; choose one of constant, cosine\.$"):
        alpha_at(0, alpha=0.1, kind="linear")
    with pytest.raises(ValueError, match=r"^decay_steps is 0; it must be 1 or more\.$"):
        alpha_at(0, alpha=0.1, decay_steps=0)
    with pytest.raises(ValueError, match=r"^alpha is -1; it must be 0 or more, and finite\.$"):
        alpha_at(0, alpha=-1)
