"""A gate on a CPU is played in parts; no episode changes."""

import pytest

from rltune.rollout.torch_engine import TorchEngine
from rltune.trainer import heldout
from rltune.trainer.heldout import evaluate
from rltune_envs.frozen_lake import FrozenLakeEnv


def lake():
    return FrozenLakeEnv(success_rate=0.5, prompt="compact")


@pytest.mark.parametrize("at_once", [1, 5, 24])
def test_parts_are_the_whole(small_policy, make_config, monkeypatch, at_once):
    config, policy = make_config(gate__temperature=1.0), small_policy()
    tasks = [lake().task(seed) for seed in range(24)]

    def episodes():
        engine = TorchEngine(policy.decoder())
        return evaluate(config, policy, engine, tasks, make_env=lake, step=1).episodes

    whole = episodes()
    monkeypatch.setattr(heldout, "gate_at_once", lambda config: at_once)
    calls, play = [], heldout.play
    monkeypatch.setattr(heldout, "play", lambda slots, **k: calls.append(1) or play(slots, **k))
    parts = episodes()
    assert len(calls) == -(-24 // at_once)
    for one, other in zip(parts, whole, strict=True):
        assert (one.task_id, one.closing, one.reward) == (
            other.task_id,
            other.closing,
            other.reward,
        )
        assert [turn.sampled_ids for turn in one.turns] == [t.sampled_ids for t in other.turns]
