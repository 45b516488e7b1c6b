"""Hand numbers: a model of 1,000 parameters on a card of 1,000 bytes/s and round speeds."""

import math
from dataclasses import replace

import pytest
from run_folders import write_sweep

from rltune.forecast.estimate import _SEEN, Span, estimate, talk_of
from rltune.forecast.gpus import Card
from rltune.forecast.memory import Shape, body_of
from rltune.spec.load import load_sweep

# 1,000 parameters: a head of 10 x 8 that is the embedding, and 920 in the layers. A token's keys
# and values: 2 x 2 layers x 4 = 16 numbers.
SHAPE = Shape(layers=2, hidden=8, inner=16, queries=8, keys=4, vocabulary=10, is_tied=True)
CARD = Card("C", "C", memory=10**12, bandwidth=1e3, flops=1e6, flops_float32=1e5)
TORCH, TRAIN = _SEEN[0].torch_share, _SEEN[0].train_share  # of the smallest model that was measured


@pytest.fixture
def config(tmp_path):
    """Two turns of 10 tokens in a context of 30: 20 are sampled, 10 are observed."""
    base = load_sweep(write_sweep(tmp_path)).conditions[0].config
    return with_keys(
        base,
        env={"max_turns": 2},
        policy={"dtype": "bfloat16"},
        rollout={
            "groups": 2,
            "group_size": 3,
            "max_response_tokens": 10,
            "max_context": 30,
            "engine": "torch",
        },
        advantage={"kind": "grpo"},
        optim={"epochs": 1, "gradient_checkpointing": False},
        gate={"every": 4, "tasks": 12},
        budget={"steps": 10},
    )


def with_keys(config, **sections):
    return config | {name: config[name] | changes for name, changes in sections.items()}


def guess(config, card=CARD):
    return estimate(config, SHAPE, parameters=1000, card=card)


def test_the_longest_conversation(config):
    talk = talk_of(config)
    assert (talk.turns, talk.sampled, talk.observed, talk.length) == (2, 20, 10, 30)
    # Observations of 5 and responses of 10: the first turn samples at 5 to 15 tokens, the second at
    # 20 to 30. Means 10 and 25, of both 17.5.
    assert talk.mean_context == 17.5
    full = with_keys(config, rollout={"max_context": 15})
    assert (talk_of(full).sampled, talk_of(full).observed) == (15, 0)
    own = config | {"env": {"kind": "my.mod:Env"}}  # says no turns: all that fit
    assert (talk_of(own).turns, talk_of(own).sampled) == (3, 30)


def decode_s(rows, *, bandwidth=1e3):
    # A pass reads 920 weights in two bytes, the head of 80 in four, and of each row 17.5 tokens of
    # 16 numbers in two bytes. 20 passes.
    return 20 * (920 * 2 + 80 * 4 + rows * 17.5 * 32) / bandwidth


def test_a_step_by_hand(config):
    found = guess(config).step
    # Read: each group's first observation once, and six second ones, 5 tokens each:
    read = (2 + 6) * 5 * 2 * 920 / 1e6
    # GRPO without a reference: one scoring pass; training is three passes: 4 of 2 operations for
    # each of 6 x 30 tokens. Logits, for 6 x 20: one to score, and 3 + 1 again to train, in float32.
    body, head = 4 * 2 * 920 * 180 / 1e6, 5 * 2 * 80 * 120 / 1e5
    assert found.least == pytest.approx(decode_s(6) + read + body + head)
    assert found.about == pytest.approx(decode_s(6) / TORCH + (read + body) / TRAIN + head)


def test_a_trial_is_its_steps_and_gates(config):
    found = guess(config)
    gate = decode_s(12) + 24 * 5 * 2 * 920 / 1e6  # 12 tasks, no observation twice
    assert found.gate.least == pytest.approx(gate)
    # gates at 0, 4, 8 and 10
    assert found.trial.least == pytest.approx(10 * found.step.least + 4 * gate)
    assert found.card == "C"


def learning_s(config):
    """Return the time of scoring and training: on a card that decodes and reads in no time."""
    fast = replace(CARD, bandwidth=math.inf)
    talk = guess(config, fast).step.least
    rows, per_token = 6, 2 * 920 / 1e6 + 2 * 80 / 1e5
    return talk - 40 * 2 * 920 / 1e6 - 20 * rows * per_token  # what is read and sampled


ONE_BODY, ONE_HEAD = 2 * 920 * 180 / 1e6, 2 * 80 * 120 / 1e5  # a pass over the batch


@pytest.mark.parametrize(
    ("changes", "bodies", "heads"),
    [
        ({}, 1 + 3, 1 + 4),
        ({"loss": {"use_kl_loss": True}}, 2 + 3, 2 + 4),  # the reference scores, too
        ({"optim": {"gradient_checkpointing": True}}, 1 + 4, 1 + 4),
        ({"optim": {"epochs": 2}}, 1 + 2 * 3, 1 + 2 * 4),
        ({"advantage": {"kind": "gae"}, "critic": {"backbone": "own"}}, 2 + 2 * 3, 1 + 4),
        ({"advantage": {"kind": "gae"}, "critic": {"backbone": "policy"}}, 1 + 3, 1 + 4),
        ({"policy": {"lora": {"rank": 2}}}, 1 + 2, 1 + 3),  # frozen weights have no gradient
    ],
)
def test_passes_of_learning(config, changes, bodies, heads):
    found = learning_s(with_keys(config, **changes))
    assert found == pytest.approx(bodies * ONE_BODY + heads * ONE_HEAD)


def test_float32_computes_at_the_speed_of_float32(config):
    found = learning_s(config) - 5 * ONE_HEAD
    slow = guess(with_keys(config, policy={"dtype": "float32"}), replace(CARD, bandwidth=math.inf))
    passes = 40 * 2 * 920 / 1e5 + 120 * (2 * 920 + 2 * 80) / 1e5
    assert slow.step.least - passes - 5 * ONE_HEAD == pytest.approx(10 * found)


def vllm(config, **keys):
    return with_keys(
        config, rollout={"engine": "vllm", "vllm": {"kv_cache_gib": 1.0, "eager": False, **keys}}
    )


def test_vllm_loses_a_fixed_time_a_pass(config):
    found = guess(vllm(config)).gate
    # Its head is in two bytes, too.
    pass_s = (1000 * 2 + 12 * 17.5 * 32) / 1e3
    read = 24 * 5 * 2 * 920 / 1e6
    assert found.least == pytest.approx(20 * pass_s + read)
    assert found.about == pytest.approx(20 * (pass_s + _SEEN[0].vllm_s) + read / TRAIN)
    lora = guess(with_keys(vllm(config), policy={"lora": {"rank": 2}})).gate
    assert lora.about - found.about == pytest.approx(20 * (_SEEN[0].lora_s - _SEEN[0].vllm_s))


def test_vllm_plays_as_many_as_its_cache_holds(config):
    # A cache of 1,680 bytes has room for 1,680 / (17.5 x 32) = 3 conversations: 12 take four times
    # 20 passes of 3.
    found = guess(vllm(config, kv_cache_gib=1680 / 2**30)).gate
    pass_s = (1000 * 2 + 3 * 17.5 * 32) / 1e3
    assert found.least == pytest.approx(80 * pass_s + 24 * 5 * 2 * 920 / 1e6)


def test_nothing_is_said_of_what_was_not_measured(config):
    found = guess(vllm(config, eager=True))
    assert found.trial.about is None
    assert found.trial.least == pytest.approx(guess(vllm(config)).trial.least)


def test_spans_add():
    assert Span(1, 2) + Span(3, 4) == Span(4, 6)
    assert Span(1, 2) + Span(3, None) == Span(4, None)
    assert Span(1, 2).times(3) == Span(3, 6)


MEASURED = {  # rows of shared measurements: parameters, bytes of a token, tokens/s
    "0.5 B": (494_032_768, 2 * 24 * 128 * 2, (15_445, 15_775, 14_323), (52_800, 36_500)),
    "3 B": (3_085_938_688, 2 * 36 * 256 * 2, (20_444, 7_662, 5_179), (16_000, 11_400)),
}


@pytest.mark.parametrize(("row", "name"), [*zip(_SEEN, MEASURED, strict=True)], ids=[*MEASURED])
def test_what_was_seen_is_what_was_measured(row, name):
    parameters, token, (vllm_rate, lora_rate, graph_rate), trained = MEASURED[name]
    limit_s = (2 * parameters + 128 * 300 * token) / 4.8e12
    assert row.parameters == pytest.approx(parameters, rel=1e-3)
    assert row.vllm_s == pytest.approx(128 / vllm_rate - limit_s, rel=2e-3)
    assert row.lora_s == pytest.approx(128 / lora_rate - limit_s, rel=2e-3)
    assert row.torch_share == pytest.approx(limit_s * graph_rate / 128, rel=0.01)
    shares = [
        passes * parameters * rate / 989e12 for passes, rate in zip((4, 6), trained, strict=True)
    ]
    assert row.train_share == pytest.approx(sum(shares) / 2, rel=0.01)


def test_body_is_what_is_not_vocabulary():
    assert body_of(SHAPE, 1000) == 920
    assert body_of(replace(SHAPE, is_tied=False), 1000) == 840
