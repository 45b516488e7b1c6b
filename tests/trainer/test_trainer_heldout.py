"""A gate on a CPU is played in parts; no episode changes. It may measure the KL to the start."""

import math
from dataclasses import replace

import pytest
import torch

from rltune.errors import InterruptedRun
from rltune.rollout.torch_engine import TorchEngine
from rltune.trainer import heldout
from rltune.trainer.heldout import evaluate, start_kl
from rltune.trainer.train_state import make_train_state
from rltune_envs.frozen_lake import FrozenLakeEnv


def lake():
    return FrozenLakeEnv(success_rate=0.5, prompt="compact")


@pytest.mark.parametrize("at_once", [1, 4, 10])
def test_parts_are_the_whole(small_policy, make_config, monkeypatch, at_once):
    config, policy = make_config(gate__temperature=1.0), small_policy()
    tasks = [lake().task(seed) for seed in range(10)]

    def episodes():
        engine = TorchEngine(policy.decoder())
        return evaluate(config, policy, engine, tasks, make_env=lake, step=1).episodes

    whole = episodes()
    monkeypatch.setattr(heldout, "gate_at_once", lambda config: at_once)
    calls, play = [], heldout.play
    monkeypatch.setattr(heldout, "play", lambda slots, **k: calls.append(1) or play(slots, **k))
    parts = episodes()
    assert len(calls) == -(-10 // at_once)
    for one, other in zip(parts, whole, strict=True):
        assert (one.task_id, one.closing, one.reward) == (
            other.task_id,
            other.closing,
            other.reward,
        )
        assert [turn.sampled_ids for turn in one.turns] == [t.sampled_ids for t in other.turns]


@torch.no_grad()
def next_token(model, context, temperature):
    """Return the logprobs of what comes after a context, in float64."""
    return (model(torch.tensor([context])).logits[0, -1].double() / temperature).log_softmax(-1)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_kl_to_the_start_is_the_sum_over_the_vocabulary(small_policy, make_config, temperature):
    config = make_config(rollout__temperature=temperature, gate__start_kl=True)
    policy = small_policy()
    tasks = [lake().task(seed) for seed in range(3)]
    engine = TorchEngine(policy.decoder())
    episodes = evaluate(config, policy, engine, tasks, make_env=lake, step=1).episodes
    state = make_train_state(policy, config)
    start = state.start
    assert start_kl(state, episodes, config) == 0.0
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.mul_(1.3)
    values = []  # token by token, from whole rows of logits
    for episode in episodes:
        context = []
        for turn in episode.turns:
            context += turn.prompt_ids
            for token in turn.sampled_ids:
                p, q = (next_token(model, context, temperature) for model in (policy.model, start))
                values.append(float((p.exp() * (p - q)).sum()))
                context.append(token)
    mean = sum(values) / len(values)
    assert start_kl(state, episodes, config) == pytest.approx(mean, rel=1e-4)
    assert mean > 0.01


def test_an_episode_with_a_fault_does_not_count(small_policy, make_config):
    config, policy = make_config(gate__start_kl=True), small_policy()
    tasks = [lake().task(seed) for seed in range(2)]
    engine = TorchEngine(policy.decoder())
    one, other = evaluate(config, policy, engine, tasks, make_env=lake, step=1).episodes
    state = make_train_state(policy, config)
    with torch.no_grad():
        policy.model.get_output_embeddings().weight.mul_(1.3)
    lost = replace(other.turns[-1], fault="it is down")
    broken = replace(other, turns=(*other.turns[:-1], lost))
    alone = start_kl(state, [one], config)
    assert start_kl(state, [one, broken], config) == pytest.approx(alone, rel=1e-6)
    assert start_kl(state, [one, other], config) != pytest.approx(alone, rel=1e-6)
    assert math.isnan(start_kl(state, [broken], config))


KL = {"loss__use_kl_loss": True, "loss__kl_loss_coef": 0.05}


@pytest.mark.parametrize("kl", [{}, pytest.param(KL, marks=pytest.mark.slow)])
def test_measuring_the_kl_changes_no_other_number(make_trial, kl):
    plain = make_trial("plain", **kl)
    measured = make_trial("measured", gate__start_kl=True, **kl)
    plain.run()
    with pytest.raises(InterruptedRun):
        measured.run(stop_at=4)
    measured.run()  # from a checkpoint: the start is that of the trial

    def lasting(row):
        return {k: v for k, v in row.items() if not k.startswith(("time", "timing_s", "perf/"))}

    rows = [lasting(row) for row in measured.rows]
    kls = {row["step"]: row.pop("heldout/start_kl", None) for row in rows}
    assert rows == [lasting(row) for row in plain.rows]
    assert [kls[0], kls[1], kls[3]] == [0.0, None, None]
    assert 0.0 < kls[2] < kls[4]


def test_a_trial_may_be_chosen_by_its_kl(make_trial):
    result = make_trial(gate__start_kl=True).run(metric="heldout/start_kl", mode="min")
    assert result.best_step == 0
    assert result.final_metric > 0.0
