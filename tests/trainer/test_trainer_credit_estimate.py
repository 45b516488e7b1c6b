"""From rewards to advantages (B1, B4, B7), and metrics by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rollout_filters import filter_of

from rltune.rollout.tokens import TokenBatch, to_batch
from rltune.spec.schema.advantage import GaeConfig, GrpoConfig
from rltune.trainer.credit.estimate import estimate
from rltune.trainer.filtering import FilterResult, apply_filter, filter_groups
from rltune.trainer.records.measures import rollout_metrics, training_metrics
from rltune.trainer.records.outcomes import cut_shares
from rltune.trainer.train_state import Signals
from rltune.types import Episode, StopReason, Turn

GRPO = GrpoConfig(kind="grpo")
GAE = GaeConfig(kind="gae")


def batch_of(rewards, group, mask, faulted=()):
    mask, rewards = torch.tensor(mask, dtype=torch.bool), torch.tensor(rewards)
    rewards_NT = torch.zeros(mask.shape)
    for row, reward in enumerate(rewards):
        if mask[row].any():
            rewards_NT[row, mask[row].nonzero()[-1]] = reward
    return TokenBatch(
        ids_NT=torch.arange(mask.numel()).reshape(mask.shape),
        action_mask_NT=mask,
        turn_ids_NT=mask.long() - 1,
        rollout_logprobs_NT=torch.zeros(mask.shape),
        rewards_NT=rewards_NT,
        turn_rewards_NT=rewards_NT,
        rewards_N=rewards,
        success_N=rewards >= 1,
        group_N=torch.tensor(group),
        episode_N=torch.arange(len(rewards)),
        is_valid_N=torch.tensor([row not in faulted for row in range(len(rewards))]),
    )


def keeping(keep_N):
    """Return the result of a filter that dropped every other row."""
    keep_N = np.array(keep_N)
    return FilterResult(keep_N, ~keep_N, np.zeros(2), 0.5, 0, 1.0)


def signals_of(batch, *, values=None, logp=0.0):
    shape = batch.ids_NT.shape
    values_NT = None if values is None else torch.tensor(values, dtype=torch.float32)
    return Signals(torch.full(shape, logp), None, values_NT)


FOUR = batch_of(
    [1.0, 0.0, 2.0, 2.0],
    [0, 0, 1, 1],
    [[0, 1, 0, 1], [0, 1, 1, 0], [0, 0, 1, 1], [0, 1, 0, 0]],
)


def test_grpo_by_hand():
    # group 0: (1 - 0.5) / std, std of [1, 0] with ddof 1 = sqrt(0.5); group 1 has no spread
    credit = estimate(FOUR, signals_of(FOUR), GRPO)
    a = 0.5 / (0.5**0.5 + 1e-6)
    want = [[0, a, 0, a], [0, -a, -a, 0], [0] * 4, [0] * 4]
    torch.testing.assert_close(credit.advantages_NT, torch.tensor(want))
    assert credit.returns_NT is None


def test_shuffled_rows_get_the_same_advantages():
    credit = estimate(FOUR, signals_of(FOUR), GRPO)
    order = torch.tensor([2, 0, 3, 1])
    shuffled = estimate(FOUR.rows(order), signals_of(FOUR.rows(order)), GRPO)
    assert torch.equal(shuffled.advantages_NT, credit.advantages_NT[order])


def test_gae_by_hand():
    # gamma = lam = 1: A = R - V at each sampled token; observation tokens carry nothing
    values = [[9, 0.5, 9, 0.25], [9, 0.0, 0.5, 9], [9, 9, 1.0, 2.0], [9, 1.0, 9, 9]]
    credit = estimate(FOUR, signals_of(FOUR, values=values), GAE)
    raw = torch.tensor([0.5, 0.75, 0.0, -0.5, 1.0, 0.0, 1.0])
    mask = FOUR.action_mask_NT
    torch.testing.assert_close(
        credit.advantages_NT[mask], (raw - raw.mean()) / (raw.var() + 1e-8).sqrt()
    )
    assert credit.returns_NT[mask].tolist() == [1.0, 1.0, 0.0, 0.0, 2.0, 2.0, 2.0]
    assert (credit.advantages_NT[~mask] == 0).all()


def test_gae_needs_values():
    with pytest.raises(ValueError, match="needs a critic's values"):
        estimate(FOUR, signals_of(FOUR), GAE)


@pytest.mark.parametrize("config", [GRPO, GAE])
def test_masked_rows_do_not_reach_the_advantages_of_others(config):
    """The same advantages as when the rows are dropped, whitening included."""
    keep = keeping([True, True, False, False])
    values = [[0, 0.5, 0, 0.25], [0, 0.0, 0.5, 0], [0, 0, 1.0, 2.0], [0, 1.0, 0, 0]]
    masked = apply_filter(FOUR, keep, on_drop="mask")
    got = estimate(masked, signals_of(FOUR, values=values), config)
    dropped = apply_filter(FOUR, keep, on_drop="drop")
    want = estimate(dropped, signals_of(dropped, values=values[:2]), config)
    torch.testing.assert_close(got.advantages_NT[:2], want.advantages_NT)
    assert (got.advantages_NT[2:] == 0).all()


def turn(sampled, *, stop=StopReason.STOP, is_valid=True, n_over_limit=0):
    n, n_invalid = len(sampled), int(not is_valid)
    logprobs = (0.0,) * n
    return Turn(
        (1,), tuple(sampled), logprobs, stop, "", "", (), 0.0, is_valid, n_invalid, n_over_limit
    )


def test_rollout_metrics_by_hand():
    cut = turn([4] * 6, stop=StopReason.LENGTH, is_valid=False)
    rows = [  # (turns, reward, success) of two groups of two
        ((turn([4, 3], n_over_limit=3), turn([3])), 3.0, True),
        ((cut,), 1.0, False),
        ((turn([4, 3]),), 2.0, False),
        ((), 2.0, False),
    ]
    episodes = [
        Episode("t", 0, i // 2, i % 2, turns, success, not success, success, reward)
        for i, (turns, reward, success) in enumerate(rows)
    ]
    config = filter_of(include_zero=False)
    chosen = filter_groups(to_batch(episodes, pad_id=0), groups=2, config=config)
    assert rollout_metrics(episodes, chosen, groups=2, auxiliary_names=("em",)) == {
        "rollout/em": 0.0,
        "rollout/fault_count": 0.0,
        "rollout/success_rate": 0.25,
        "rollout/reward_mean": 2.0,
        "rollout/in_group_reward_std": pytest.approx(2**0.5 / 2),  # (sqrt(2) + 0) / 2
        "rollout/filter_kept_ratio": 0.5,
        "rollout/filter_zero_count": 1.0,
        "rollout/invalid_action_rate": 0.25,  # one of four turns
        "rollout/over_limit_actions": 0.75,  # 3 in four turns
        "rollout/turns": 1.0,
        "response_length/mean": 2.75,  # (2 + 1 + 6 + 2) / 4
        "response_length/max": 6.0,
        "response_length/min": 1.0,
        "response_length/clip_ratio": 0.25,
        "rollout/context_clip_ratio": 0.0,
        "rollout/out_of_context_ratio": 0.0,
    }


def test_each_limit_has_its_share():
    """Of five responses two were cut: one at each limit. The context ended one of two episodes."""
    said = [turn([4, 3]), turn([4, 3]), turn([4] * 6, stop=StopReason.LENGTH)]
    short = [turn([4, 3]), turn([4, 4], stop=StopReason.CONTEXT_CUT)]
    whole = Episode("t", 0, 0, 0, tuple(said), False, True, False, 0.0)
    ended = replace(whole, turns=tuple(short), is_out_of_context=True)
    assert cut_shares([whole, ended]) == {
        "clip_ratio": 0.2,
        "context_clip_ratio": 0.2,
        "out_of_context_ratio": 0.5,
    }
    assert set(cut_shares([]).values()) == {0.0}


def test_training_metrics_by_hand():
    values = [[0, 0.5, 0, 0.5], [0, 0.0, 0.0, 0], [0, 0, 2.0, 2.0], [0, 2.0, 0, 0]]
    signals = signals_of(FOUR, values=values)
    got = training_metrics(FOUR, signals, estimate(FOUR, signals, GAE))
    assert (got["critic/score/mean"], got["critic/score/max"]) == (1.25, 2.0)
    # returns [1, 1, 0, 0, 2, 2, 2]: variance 34/49; error [.5, .5, 0 x5]: variance 2.5/49
    assert got["critic/vf_explained_var"] == pytest.approx(1 - 2.5 / 34, rel=1e-5)
    assert (got["critic/returns/min"], got["critic/values/max"]) == (0.0, 2.0)


@pytest.mark.parametrize("config", [GRPO, GAE])
def test_metrics_of_a_step_in_which_every_row_is_masked(config):
    nothing = replace(FOUR, action_mask_NT=torch.zeros(4, 4, dtype=torch.bool))
    signals = signals_of(nothing, values=np.zeros((4, 4)).tolist())
    credit = estimate(nothing, signals, config)
    got = training_metrics(nothing, signals, credit)
    assert all(np.isfinite(value) for value in got.values())
    assert "critic/score/mean" not in got


def test_scores_are_those_of_the_rows_that_are_trained():
    masked = apply_filter(FOUR, keeping([True, True, False, False]), on_drop="mask")
    credit = estimate(masked, signals_of(masked), GRPO)
    assert training_metrics(masked, signals_of(masked), credit)["critic/score/mean"] == 0.5
