import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.advantages.gae import gae
from rltune.advantages.gae_bilevel import gae_bilevel

NUMBERS = {"gamma": 0.9, "lam": 0.8, "gamma_turn": 0.7, "lam_turn": 0.6}


def run(rewards, values, ids, **numbers):
    row = [torch.tensor([x], dtype=torch.float64) for x in (rewards, values)]
    ids = torch.tensor([ids])
    return gae_bilevel(*row, ids >= 0, ids, **{**NUMBERS, **numbers})


def by_loops(rewards, values, ids, *, gamma, lam, gamma_turn, lam_turn):
    """One row, as written in the two equations, over lists of places."""
    places = [t for t, turn in enumerate(ids) if turn >= 0]
    turns = sorted({ids[t] for t in places})
    ends = {k: max(t for t in places if ids[t] == k) for k in turns}
    out, later = [0.0] * len(ids), None
    for k in reversed(turns):
        end = ends[k]
        value_next, advantage_next = (
            (values[ends[later]], out[ends[later]]) if later in ends else (0, 0)
        )
        delta = rewards[end] + gamma_turn * value_next - values[end]
        out[end] = delta + gamma_turn * lam_turn * advantage_next
        inner = [t for t in places if ids[t] == k]
        for t, following in reversed(list(itertools.pairwise(inner))):
            delta = gamma * values[following] - values[t]
            out[t] = delta + gamma * lam * out[following]
        later = k
    return out


def random_batch(seed, *, rows=3, width=9, turns=3):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, turns, (rows, width), generator=generator).sort(1).values
    ids = ids.where(torch.rand(rows, width, generator=generator) < 0.7, -1)
    values = torch.randn(rows, width, dtype=torch.float64, generator=generator)
    is_end = torch.stack(
        [(ids[:, t] >= 0) & (ids[:, t + 1 :] != ids[:, t, None]).all(1) for t in range(width)], 1
    )
    rewards = torch.randn(rows, width, dtype=torch.float64, generator=generator).where(is_end, 0)
    return rewards, values, ids


def test_by_hand():
    # turn 0: tokens 0, 1; observation 2; turn 1: tokens 3, 4.  gamma .5, lam .5, both of turns 1
    # ends: A_4 = 1 - .2 = .8;              A_1 = 0 + .2 - .4 + .8 = .6
    # t=3: .5 * .2 - .6 + .25 * .8 = -.3;   t=0: .5 * .4 - .8 + .25 * .6 = -.45
    result = run(
        [0, 0, 0, 0, 1],
        [0.8, 0.4, 9, 0.6, 0.2],
        [0, 0, -1, 1, 1],
        gamma=0.5,
        lam=0.5,
        gamma_turn=1.0,
        lam_turn=1.0,
    )
    assert result.advantages_NT[0].tolist() == pytest.approx([-0.45, 0.6, 0, -0.3, 0.8])
    assert result.returns_NT[0].tolist() == pytest.approx([0.35, 1.0, 0, 0.3, 1.0])  # A + V


def test_both_discounts_act_on_their_own_level():
    # no critic, lambdas 1. gamma_turn .5: turn returns 1 + .5 * (2 + .5 * 4) = 3, 4, 4;
    # gamma .25 inside: the first token of turn 0 gets .25 * 3, that of turn 2 .25 * 4
    result = run(
        [0, 1, 2, 0, 4], [0] * 5, [0, 0, 1, 2, 2], gamma=0.25, lam=1.0, gamma_turn=0.5, lam_turn=1.0
    )
    assert result.advantages_NT[0].tolist() == [0.75, 3, 4, 1, 4]


def test_a_turn_of_reward_zero_is_a_turn():
    # turns of reward 0, 0, 8 and gamma_turn .5: 2, 4, 8. Ends found by reward != 0 would give one
    # turn of three tokens, and 8 everywhere with gamma 1.
    result = run([0, 0, 8], [0, 0, 0], [0, 1, 2], gamma=1.0, lam=1.0, gamma_turn=0.5, lam_turn=1.0)
    assert result.advantages_NT[0].tolist() == [2, 4, 8]


def test_a_last_turn_of_reward_zero_still_discounts():
    # turn 1 earns 0; its value 6 is what turn 0 looks forward to: 1 + .5 * 6 - 2 + .5 * (0 - 6)
    result = run([1, 0], [2, 6], [0, 1], gamma_turn=0.5, lam_turn=1.0)
    assert result.advantages_NT[0].tolist() == [-1, -6]


def test_lam_turn_zero_is_the_one_turn_error():
    # 1 + .5 * 4 - 2; 3 - 4
    result = run([1, 3], [2, 4], [0, 1], gamma_turn=0.5, lam_turn=0.0)
    assert result.advantages_NT[0].tolist() == [1, -1]


def test_lam_zero_is_the_one_token_error_inside_a_turn():
    # .5 * 3 - 1; .5 * 7 - 3; 2 - 7
    result = run([0, 0, 2], [1, 3, 7], [0, 0, 0], gamma=0.5, lam=0.0)
    assert result.advantages_NT[0].tolist() == [0.5, 0.5, -5]


@pytest.mark.parametrize("bootstrap", [None, torch.tensor([2.0, -1, 5], dtype=torch.float64)])
def test_one_turn_is_gae(bootstrap):
    rewards, values, ids = random_batch(5, turns=1)
    low = {"gamma": 0.9, "lam": 0.8}
    want = gae(rewards, values, ids >= 0, **low, bootstrap_N=bootstrap)
    got = gae_bilevel(
        rewards, values, ids >= 0, ids, **low, gamma_turn=0.9, lam_turn=0.3, bootstrap_N=bootstrap
    )
    assert torch.equal(got.advantages_NT, want.advantages_NT)
    assert torch.equal(got.returns_NT, want.returns_NT)


def test_one_token_per_turn_is_gae_over_turns():
    rewards, values, _ = random_batch(6)
    rewards = torch.randn_like(rewards)
    ids = torch.arange(9).expand(3, 9)
    want = gae(rewards, values, ids >= 0, gamma=0.7, lam=0.6)
    got = gae_bilevel(rewards, values, ids >= 0, ids, **NUMBERS)
    assert torch.equal(got.advantages_NT, want.advantages_NT)


def test_all_ones_is_the_return_minus_the_value():
    rewards, values, ids = random_batch(7)
    ones = dict.fromkeys(NUMBERS, 1.0)
    got = gae_bilevel(rewards, values, ids >= 0, ids, **ones).advantages_NT
    to_go = rewards.flip(1).cumsum(1).flip(1)
    torch.testing.assert_close(got, (to_go - values).where(ids >= 0, 0), rtol=0, atol=1e-12)


@settings(deadline=None)
@given(st.integers(0, 10_000))
def test_equal_to_loops_and_rows_permute(seed):
    rewards, values, ids = random_batch(seed)
    got = gae_bilevel(rewards, values, ids >= 0, ids, **NUMBERS).advantages_NT
    for row in range(3):
        want = by_loops(*(x[row].tolist() for x in (rewards, values, ids)), **NUMBERS)
        assert got[row].tolist() == pytest.approx(want, abs=1e-12)
    order = [2, 0, 1]
    again = gae_bilevel(rewards[order], values[order], ids[order] >= 0, ids[order], **NUMBERS)
    assert torch.equal(again.advantages_NT, got[order])


def test_turns_and_observations_without_tokens_change_nothing():
    short = run([0, 1, 2], [0.5, 0.2, 0.3], [0, 0, 1])
    long = run([0, 0, 1, 0, 2, 0], [8, 0.5, 0.2, 8, 0.3, 8], [-1, 1, 1, -1, 4, -1])
    assert torch.equal(long.advantages_NT[:, [1, 2, 4]], short.advantages_NT)
    assert long.returns_NT[0, [0, 3, 5]].tolist() == [0, 0, 0]


@pytest.mark.parametrize("rubbish", [math.nan, 1e6, math.inf])
def test_case_b7_what_is_outside_the_mask_never_matters(rubbish):
    rewards, values, ids = random_batch(11)
    mask = (ids >= 0) & torch.tensor([[True], [True], [False]])  # the last row is masked out
    rewards = rewards.where(mask, 0)
    clean = gae_bilevel(rewards, values, mask, ids.where(mask, -1), **NUMBERS)
    dirty = gae_bilevel(
        rewards.where(mask, math.nan),
        values.where(mask, rubbish),
        mask,
        ids.where(mask, 7),
        **NUMBERS,
    )
    assert torch.equal(clean.advantages_NT, dirty.advantages_NT)
    assert torch.equal(clean.returns_NT, dirty.returns_NT)
    assert not clean.advantages_NT[2].any()


def test_bootstrap_stands_in_for_the_state_after_the_last_turn():
    # 0 + .5 * 8 - 1 = 3; 0 + .5 * 1 - 2 + .5 * 3 = 0
    bootstrap = torch.tensor([8.0], dtype=torch.float64)
    result = run([0, 0], [2, 1], [0, 1], gamma_turn=0.5, lam_turn=1.0, bootstrap_N=bootstrap)
    assert result.advantages_NT[0].tolist() == [0, 3]


def test_results_are_constants_in_full_precision():
    values = torch.ones(1, 2, dtype=torch.bfloat16, requires_grad=True)
    rewards = torch.zeros(1, 2, dtype=torch.bfloat16, requires_grad=True)
    ids = torch.tensor([[0, 1]])
    result = gae_bilevel(rewards, values, ids >= 0, ids, **NUMBERS)
    for got in (result.advantages_NT, result.returns_NT):
        assert not got.requires_grad
        assert got.dtype == torch.float32


def test_nothing_sampled_is_zero():
    assert run([0, 0], [3, 4], [-1, -1]).returns_NT.tolist() == [[0, 0]]


@pytest.mark.parametrize("name", ["gamma", "lam", "gamma_turn", "lam_turn"])
def test_each_number_lies_in_its_range(name):
    with pytest.raises(ValueError, match=rf"^{name} is 1\.1; it must lie in \[0, 1\]\.$"):
        run([0], [0], [0], **{name: 1.1})


def test_refusals():
    with pytest.raises(
        ValueError,
        match=r"^reward 3 at row 0, token 0 stands inside a turn\. Put a turn's reward on",
    ):
        run([3, 0], [0, 0], [0, 0])
    with pytest.raises(ValueError, match=r"^reward 1 at row 0, token 1 lies outside the mask and"):
        run([0, 1], [0, 0], [0, -1])
    with pytest.raises(ValueError, match=r"^a reward on a sampled token is not finite; check"):
        run([math.nan], [0], [0])
    with pytest.raises(ValueError, match=r"^token 1 of row 0 is of turn 0 but comes after turn 1;"):
        run([0, 0], [0, 0], [1, 0])
    x, mask = torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"^token 0 of row 0 is sampled but in no turn; give it"):
        gae_bilevel(x, x, mask, torch.full((1, 2), -1), **NUMBERS)
