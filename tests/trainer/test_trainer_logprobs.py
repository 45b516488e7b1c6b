"""C11: what the engine reports is what the trainer computes again, at the sampling temperature."""

import pytest
import torch
from credit_cases import parts_of

from rltune.losses.correction import rollout_diagnostics
from rltune.policy.load import load_policy
from rltune.rollout.tokens import to_batch
from rltune.rollout.torch_engine import TorchEngine
from rltune.trainer.collect import collect
from rltune.trainer.tasks import env_maker, freeze_tasks
from rltune.trainer.train_state import make_train_state, score_batch


def ratios(batch, train_state, *, temperature, micro_batch_size=3):
    signals = score_batch(
        train_state, batch, temperature=temperature, parts=parts_of(batch, micro_batch_size)
    )
    mask = batch.action_mask_NT
    rollout = batch.rollout_logprobs_NT
    return (signals.old_logp_NT - rollout)[mask].exp()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_ratio_is_1_on_ragged_multi_turn_rows(small_policy, make_config, sample_batch, temperature):
    config = make_config(
        rollout__temperature=temperature,
        rollout__groups=4,
        rollout__max_response_tokens=6,
        optim__micro_batch_size=4,
    )
    policy = small_policy()
    episodes, batch = sample_batch(config, policy)
    turns = [len(e.turns) for e in episodes]
    lengths = {len(t.sampled_ids) for e in episodes for t in e.turns}
    assert min(turns) < max(turns)  # rows that end early
    assert len(lengths) > 2
    assert any(t.sampled_ids[-1] in policy.end_ids for e in episodes for t in e.turns)
    for group in range(4):
        first = {e.turns[0].prompt_ids for e in episodes if e.group == group}
        assert len(first) == 1
    ratio = ratios(batch, make_train_state(policy, config), temperature=temperature)
    assert (ratio - 1).abs().max() < 1e-4


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_ratio_is_1_for_the_shipped_policy_on_sokoban(make_config, temperature):
    config = make_config(
        rollout__temperature=temperature, env__train_tasks=4, rollout__groups=4, gate__tasks=1
    )
    policy = load_policy(
        "tiny",
        dtype="float32",
        template="auto",
        is_bare=True,
        env_kind="sokoban",
        device="cpu",
    )
    episodes = collect(
        config,
        policy,
        TorchEngine(policy.decoder()),
        freeze_tasks(config).train,
        step=1,
        make_env=env_maker(config.env),
    )
    assert max(len(e.turns) for e in episodes) > 1
    batch = to_batch(episodes, pad_id=policy.pad_id)
    ratio = ratios(batch, make_train_state(policy, config), temperature=temperature)
    assert (ratio - 1).abs().max() < 1e-4


def test_the_wrong_temperature_would_be_seen(small_policy, make_config, sample_batch):
    config = make_config(rollout__temperature=0.5)
    policy = small_policy()
    _, batch = sample_batch(config, policy)
    assert (ratios(batch, make_train_state(policy, config), temperature=1.0) - 1).abs().max() > 0.1


def test_scores_do_not_depend_on_the_micro_batch(small_policy, make_config, sample_batch):
    config = make_config(advantage={"kind": "gae"}, loss__use_kl_loss=True, loss__kl_loss_coef=0.1)
    policy = small_policy()
    _, batch = sample_batch(config, policy)
    train_state = make_train_state(policy, config)
    with torch.no_grad():
        for parameter in train_state.critic.head.parameters():
            parameter.add_(0.1)
    whole = score_batch(train_state, batch, temperature=1.0, parts=parts_of(batch, 8))
    for size in (1, 3):
        part = score_batch(train_state, batch, temperature=1.0, parts=parts_of(batch, size))
        for name in ("old_logp_NT", "ref_logp_NT", "values_NT"):
            got, want = getattr(part, name), getattr(whole, name)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
            assert (got[~batch.action_mask_NT] == 0).all()
            assert (want[batch.action_mask_NT] != 0).all()


def test_the_diagnostics_see_a_gap(small_policy, make_config, sample_batch):
    config = make_config()
    policy = small_policy()
    _, batch = sample_batch(config, policy)
    signals = score_batch(
        make_train_state(policy, config), batch, temperature=1.0, parts=parts_of(batch, 4)
    )
    mask = batch.action_mask_NT

    def diagnostics():
        reported = batch.rollout_logprobs_NT
        return rollout_diagnostics(signals.old_logp_NT, reported, mask, None)

    assert diagnostics()["rollout_corr/logprob_diff_max"] < 1e-4
    batch.rollout_logprobs_NT[batch.action_mask_NT] += 0.25
    off = diagnostics()
    assert off["rollout_corr/logprob_diff_max"] == pytest.approx(0.25, abs=1e-4)
    assert off["rollout_corr/kl"] == pytest.approx(0.25, abs=1e-4)
