"""Score and update through prefix trees: what they are by row, for every loss and estimator."""

import pytest
import torch

from rltune.losses.reduce import AGGREGATIONS
from rltune.spec.estimators import ESTIMATOR_KINDS
from rltune.store.digest import deterministic_row
from rltune.store.files import dumps
from rltune.trainer.batches.micro_batches import cut_batch, limit_of, padding_share
from rltune.trainer.batches.mini_batches import plan_update
from rltune.trainer.credit.estimate import estimate
from rltune.trainer.objective import MiniBatch, update
from rltune.trainer.policy_loss import POLICY_LOSSES
from rltune.trainer.train_state import make_train_state, score_batch

BY_ROW = "this test compares with rows as they are"
ONE_STEP = {"optim__mini_batch_size": 8, "optim__micro_batch_size": None, "optim__grad_clip": 1e9}
KL = {"loss__use_kl_loss": True, "loss__kl_loss_coef": 0.1}
CRITIC = {"advantage": {"kind": "gae"}, "critic__lr": 1e-3}
GRPO = {"advantage": {"kind": "grpo"}}
MORE = {  # what an estimator needs beside its name
    "maxrl": {"outcome": "success"},  # rewards may be negative
    "custom": {"estimator": "credit_cases:below"},
}
CHANGES = {
    **{f"loss {kind}": {"loss__kind": kind} for kind in POLICY_LOSSES},
    **{kind: {"advantage": {"kind": kind, **MORE.get(kind, {})}} for kind in ESTIMATOR_KINDS},
    **{name: {"loss__aggregation": name} for name in AGGREGATIONS},
    "few tokens a pass": {"optim__tokens_per_micro_batch": 30, **KL},
    "by group": {"optim__minibatch_by": "group"},
    "own critic": {**CRITIC, **KL, "critic__backbone": "own"},
    "critic on the policy": {**CRITIC, **KL, "critic__backbone": "policy"},
    "full kl": {**GRPO, **KL, "loss__kl_type": "full"},
    "k3": {**GRPO, **KL, "loss__kl_type": "k3"},
    "entropy bonus": {**GRPO, "loss__entropy_coeff": 0.01},
    "entropy of tokens": {"advantage": {"kind": "grpo", "shaping": {"gtpo_beta": 0.1}}},
    "correction": {**GRPO, "rollout_correction__kind": "tis"},
    "checkpointing": {**CRITIC, "optim__gradient_checkpointing": True},
    "adapter": {"policy__lora__rank": 4, **KL},
}


@pytest.fixture
def both(small_policy, make_config, sample_batch):
    """Return a maker of what score and update give of one batch, through trees and by row."""

    def run(config, batch, *, is_shared):
        train_state = make_train_state(small_policy(dtype="float64"), config)
        train_state.why_rows = None if is_shared else BY_ROW
        generator = torch.Generator().manual_seed(1)
        modules = [train_state.policy.model, train_state.critic]
        with torch.no_grad():  # away from the reference
            for parameter in (p for m in modules if m is not None for p in m.parameters()):
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.add_(0.05 * noise.to(parameter.dtype))
        limit = limit_of(train_state.policy, config, train_state.pair_cost)
        parts = cut_batch(batch, limit)
        own = [
            part for one in plan_update(batch, config, step=1, limit=limit) for part in one.parts
        ]
        assert any(part.tree is not None for part in (*parts, *own)) == is_shared
        signals = score_batch(train_state, batch, temperature=1.0, parts=parts, with_entropy=True)
        credit = estimate(batch, signals, config.advantage)
        data = MiniBatch(batch, signals, credit)
        metrics = update(train_state, data, config, step=1, kl_coef=config.loss.kl_loss_coef)
        gradients = [p.grad for m in modules if m is not None for p in m.parameters()]
        return signals, metrics, gradients

    def make(*, masked=0, **changes):
        config = make_config(**{**ONE_STEP, **changes})
        _, batch = sample_batch(config, small_policy())
        batch.action_mask_NT[:masked] = False
        batch.success_N[::3] = True  # some of each group
        return [run(config, batch, is_shared=is_shared) for is_shared in (True, False)]

    return make


def require_equal(got, want):
    (signals, metrics, gradients), (row_signals, row_metrics, row_gradients) = got, want
    for name in ("old_logp_NT", "ref_logp_NT", "values_NT", "entropy_NT"):
        one, other = getattr(signals, name), getattr(row_signals, name)
        if other is not None:
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
    assert metrics == pytest.approx(row_metrics, rel=1e-8, abs=1e-9)
    for one, other in zip(gradients, row_gradients, strict=True):
        if other is not None:
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_signals_metrics_and_gradients(both, changes):
    got, want = both(**changes)
    require_equal(got, want)
    assert want[1]["actor/grad_norm"] > 1e-6


def test_rows_that_were_masked_out(both):
    require_equal(*both(masked=2, **CRITIC))


@pytest.mark.slow  # 40 training steps
def test_a_trial_by_trees_agrees_until_rounding_decides_a_sample(make_trial, monkeypatch):
    shared = make_trial("shared", budget__steps=20)
    shared.run()
    monkeypatch.setattr("rltune.trainer.train_state.why_rows", lambda *_, **__: BY_ROW)
    apart = make_trial("apart", budget__steps=20)
    apart.run()
    n_equal = 0
    for one, other in zip(shared.rows[1:], apart.rows[1:], strict=True):
        if one["rollout/sampled_hash"] != other["rollout/sampled_hash"]:
            break
        n_equal += 1
        for name in ("actor/pg_loss", "actor/entropy", "actor/grad_norm"):
            assert one[name] == pytest.approx(other[name], rel=1e-3, abs=1e-5)
    assert n_equal >= 5


def test_a_trial_by_trees_is_bit_equal_to_itself(make_trial, plain):
    other = make_trial()
    other.run()
    found = [dumps(list(map(deterministic_row, trial.rows))) for trial in (plain[0], other)]
    assert found[0] == found[1]


def test_a_shared_token_is_counted_once(small_policy, make_config, sample_batch):
    config = make_config(**ONE_STEP)
    _, batch = sample_batch(config, small_policy())
    train_state = make_train_state(small_policy(), config)
    parts = cut_batch(batch, limit_of(train_state.policy, config, train_state.pair_cost))
    trees = [part.tree.tree for part in parts if part.tree is not None]
    assert trees
    assert len(trees) == len(parts)
    assert sum(len(tree.ids_P) for tree in trees) < int(batch.lengths_N.sum())
    assert padding_share(batch, parts) == 0  # places have no padding
