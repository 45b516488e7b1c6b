"""The first optimiser step needs no scoring: its own logprobs are the old ones."""

import math

import pytest
import torch
from credit_cases import signals_of

from rltune.store.digest import deterministic_row
from rltune.store.files import dumps
from rltune.trainer.batches import mini_batches
from rltune.trainer.batches.micro_batches import limit_of
from rltune.trainer.batches.mini_batches import needs_old_logprobs, plan_scoring, plan_update
from rltune.trainer.credit.estimate import estimate
from rltune.trainer.objective import MiniBatch, update
from rltune.trainer.train_state import make_train_state, score_batch

LORA = {"rank": 4, "alpha": 8.0, "dropout": 0.0, "targets": ["q_proj"], "init": None}
KL = {"loss__use_kl_loss": True, "loss__kl_loss_coef": 0.1, "optim__epochs": 2}
GROUPS = {"optim__minibatch_by": "group"}
OWN = {"advantage": {"kind": "gae"}, "critic__backbone": "own", "critic__lr": 1e-3}
SKIPPED = {
    "ppo": {},
    "two epochs": {"optim__epochs": 2},
    "one step": {"optim__mini_batch_size": 8},
    "by group": {**GROUPS, "optim__tokens_per_micro_batch": 60, "optim__micro_batch_size": None},
    "kl": KL,
    "full kl": {**KL, "loss__kl_type": "full"},
    "entropy bonus": {"loss__entropy_coeff": 0.01},
    "own critic": {**OWN, **KL},
    "gspo": {"loss__kind": "gspo", "optim__epochs": 2},
    "cispo": {"loss__kind": "cispo"},
    "turn": {"loss__kind": "turn"},
    "reinforce": {"loss__kind": "reinforce"},
    "checkpointing": {"optim__gradient_checkpointing": True},
    "bfloat16": {"policy__dtype": "bfloat16"},
    "adapter": {"policy__lora__rank": 4},
    "masked": {"rollout_filter__value": 0.5, "rollout_filter__on_drop": "mask"},
    "dropped": {"rollout_filter__value": 0.5, "rollout_filter__on_drop": "drop"},
}
SCORED = {
    "critic on the policy": {"advantage": {"kind": "gae"}, "critic__backbone": "policy"},
    "surprisal": {"advantage": {"kind": "grpo", "shaping": {"gtpo_beta": 0.1}}},
    "correction": {"rollout_correction__kind": "tis"},
    "dropout": {"policy__lora__rank": 4, "policy__lora__dropout": 0.1},
    "information gain": {"advantage": {"kind": "grpo", "ddof": 0}, "attribution": "info_gain"},
}


SHORT = {"budget__steps": 2, "gate__every": 2}
# The others are slow: each of their parts is in one of these, or they differ in the loss alone.
FAST = {
    *("two epochs", "by group", "own critic", "cispo", "bfloat16", "adapter", "masked"),
}


def steps_of(trial):
    """Return what a trial recorded but times, and the weights that it ended with."""
    trial.run()
    rows = [deterministic_row(row) for row in trial.rows]
    return rows, trial.policy.model.state_dict()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in SKIPPED]
)
def test_a_trial_is_bit_equal_to_one_that_scores_every_row(make_trial, monkeypatch, name):
    changes = SKIPPED[name]
    trial = make_trial("skips", **SHORT, **changes)
    assert not needs_old_logprobs(trial.config)
    rows, weights = steps_of(trial)
    monkeypatch.setattr(mini_batches, "needs_old_logprobs", lambda config: True)
    whole_rows, whole_weights = steps_of(make_trial("scores", **SHORT, **changes))
    assert dumps(rows) == dumps(whole_rows)
    assert all(torch.equal(weights[name], whole_weights[name]) for name in whole_weights)
    assert sum(row.get("actor/grad_norm", 0) > 0 for row in rows) > 1


@pytest.mark.parametrize("changes", SCORED.values(), ids=SCORED)
def test_what_needs_the_old_logprobs_has_them(make_config, changes):
    assert needs_old_logprobs(make_config(**changes))


def test_of_one_optimiser_step_no_row_is_scored_and_the_ratio_is_1(make_trial):
    trial = make_trial(optim__mini_batch_size=8, **SHORT)
    trial.run()
    steps = [row for row in trial.rows if row["step"]]
    assert [row["actor/ppo_kl"] for row in steps] == [0.0] * 2
    assert all(math.isfinite(row["rollout_corr/kl"]) for row in steps)


@pytest.fixture
def scored(small_policy, make_config, sample_batch):
    config = make_config(optim__epochs=2)
    _, batch = sample_batch(config, small_policy())
    train_state = make_train_state(small_policy(), config)
    limit = limit_of(train_state.policy, config, train_state.pair_cost)
    plan = plan_update(batch, config, step=1, limit=limit)
    scoring = plan_scoring(batch, plan, config, limit)
    signals = score_batch(
        train_state, batch, temperature=1.0, parts=scoring.parts, pending=scoring.pending
    )
    return train_state, batch, config, plan, signals


def test_pending_logprobs_are_unknown_until_the_update_fills_them_in(scored):
    train_state, batch, config, plan, signals = scored
    first = torch.zeros(len(batch), dtype=torch.bool)
    first[plan[0].rows] = True
    unknown = signals.old_logp_NT.isnan()
    assert torch.equal(unknown, batch.action_mask_NT & first[:, None])
    whole = score_batch(train_state, batch, temperature=1.0, parts=[*plan[0].parts, *plan[1].parts])
    data = MiniBatch(batch, signals, estimate(batch, signals, config.advantage))
    update(train_state, data, config, step=1, kl_coef=0)
    torch.testing.assert_close(signals.old_logp_NT, whole.old_logp_NT, rtol=1e-5, atol=1e-6)
    assert torch.equal(signals.old_logp_NT[first], whole.old_logp_NT[first])


def test_a_row_of_a_later_step_must_be_scored(scored):
    train_state, batch, config, plan, signals = scored
    signals.is_pending_N[plan[1].rows[:1]] = True
    data = MiniBatch(batch, signals, estimate(batch, signals_of(batch), config.advantage))
    with pytest.raises(ValueError, match=r"^1 rows of later optimiser steps are not scored$"):
        update(train_state, data, config, step=1, kl_coef=0)


def test_a_row_whose_scores_are_not_finite_is_no_row_without_any(scored):
    train_state, batch, config, plan, _ = scored
    scoring = plan_scoring(batch, plan, config, limit_of(train_state.policy, config))
    torch.nn.init.constant_(next(train_state.policy.model.parameters()), torch.nan)
    signals = score_batch(
        train_state, batch, temperature=1.0, parts=scoring.parts, pending=scoring.pending
    )
    first = torch.zeros(len(batch), dtype=torch.bool)
    first[torch.cat([own.rows for own in scoring.pending])] = True
    assert signals.old_logp_NT[~first].isnan().any()
    assert torch.equal(signals.is_pending_N, first)
