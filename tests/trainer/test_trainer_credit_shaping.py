"""Weights of tokens: which are planning tokens, in what order the stages come, on what signal."""

import string
from types import SimpleNamespace

import pytest
import torch
from credit_cases import (
    batch_of,
    config_of,
    load,
    make_episode,
    make_turn,
    parts_of,
    shipped,
    signals_of,
)
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from rltune.advantages.gtpo import gtpo
from rltune.advantages.hicra import hicra
from rltune.advantages.sepa import exec_variance, sepa_pool
from rltune.signals.planning import DEFAULT_GRAMS
from rltune.spec.schema.advantage import ShapingConfig
from rltune.trainer.credit.shaping import needs_entropy, planning_mask, shape
from rltune.trainer.train_state import make_train_state, score_batch


@pytest.fixture(scope="module")
def letters():
    """Return a policy whose tokens are characters, but for three that are longer."""
    tokens = ["<pad>", *string.ascii_letters, *" ,.'\n", "et", " me", "’", "heck"]
    merges = [("e", "t"), ("h", "e"), ("he", "c"), ("hec", "k"), ("m", "e"), (" ", "me")]
    vocabulary = {t: i for i, t in enumerate([*tokens, "he", "hec", "me"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<pad>"))
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<pad>")
    return SimpleNamespace(tokenizer=fast)


def conversation(tokenizer, turns):
    """Write an episode of (what was shown, what was said)."""

    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False)

    return make_episode([make_turn(encode(said), prompt=encode(shown)) for shown, said in turns])


def marked(policy, turns, *, grams=DEFAULT_GRAMS):
    """Return the text of the marked tokens, row by row, and check that they are sampled ones."""
    episodes = [conversation(policy.tokenizer, own) for own in turns]
    batch = batch_of(episodes)
    mask = planning_mask(policy, batch, grams=grams)
    assert mask.shape == batch.ids_NT.shape
    assert not mask[~batch.action_mask_NT].any()
    ids = batch.ids_NT
    return [policy.tokenizer.decode(ids[row][mask[row]]) for row in range(len(batch))]


def test_exactly_the_tokens_of_a_phrase(letters):
    turns = [
        [("room", "so, Wait, let me see. that’s\nnot right, no")],
        [("room", "letting me check nothing")],  # no whole words
        [("room", "up"), ("hall", "then let me check")],
    ]
    assert marked(letters, turns) == ["Wait, let methat’s\nnot right", "", "let me check"]


def test_never_across_what_the_environment_said(letters):
    turns = [
        [("go", "start"), ("over", "up")],  # half of it was shown
        [("start", "over and up")],
        [("go", "then start"), ("", "over")],  # two turns with nothing between
        [("start over", "up")],
        [("go", "start over"), ("start over", "up"), ("go", "start over")],
    ]
    assert marked(letters, turns) == ["", "", "", "", "start overstart over"]


def test_a_row_with_a_fault_has_none(letters):
    said = letters.tokenizer.encode("start over")
    broken = make_episode([make_turn(said, fault="retriever: down")])
    batch = batch_of([broken, make_episode([make_turn(said)])])
    mask = planning_mask(letters, batch, grams=DEFAULT_GRAMS)
    assert (int(mask[0].sum()), int(mask[1].sum())) == (0, len(said))


def test_with_the_shipped_policys_words():
    policy = shipped("multihop_qa")
    turns = [
        [("Faleth", "<search>Faleth yes</search>"), ("yes no", "<answer>yes</answer>")],
        [("<search>", "<answer>Faleth</answer>")],
    ]
    assert marked(policy, turns, grams=["<search>", "<answer> yes"]) == [
        "<search> <answer> yes",
        "",
    ]


# MATHS 5: H = [.5, 1, .3, 2], planning on the first and the last, beta .1, A = 3
H = torch.tensor([[0.0, 0.5, 1.0, 0.3, 2.0]])
PLAN = [True, False, False, True]
MATHS = [
    pytest.param("none", 0.0, [2.857895, 3.015789, 2.794737, 3.331579], id="gtpo"),
    pytest.param("linear", 0.0, [2.857895, 3.015789, 2.794737, 3.331579], id="not yet"),
    pytest.param("linear", 1.0, [2.857895, 2.905263, 2.905263, 3.331579], id="pooled"),
]


def by_hand(letters, section, *, lam=0.0, signal=H, advantage=3.0):
    """Shape one row of four tokens."""
    a, b = letters.tokenizer.encode("a") + letters.tokenizer.encode("b")
    batch = batch_of([make_episode([make_turn([a, b, b, a], prompt=(b,))])])
    mask = batch.action_mask_NT
    advantages = torch.full(mask.shape, advantage).where(mask, 0)
    signals = signals_of(batch, old_logp=-signal, entropy=signal)
    config = ShapingConfig.model_validate(section)
    return shape(letters, advantages, batch, signals, config, sepa_lambda=lam), mask


@pytest.fixture
def planned(letters, monkeypatch):
    """Mark the tokens of MATHS 5 as planning."""
    mask = torch.tensor([[False, *PLAN]])
    monkeypatch.setattr("rltune.trainer.credit.shaping.planning_mask", lambda *_, **__: mask)
    return letters


@pytest.mark.parametrize("signal", ["surprisal", "entropy"])
@pytest.mark.parametrize(("schedule", "lam", "want"), MATHS)
def test_goldens(planned, schedule, lam, want, signal):
    section = {"gtpo_beta": 0.1, "sepa": {"schedule": schedule}, "signal": signal}
    found, mask = by_hand(planned, section, lam=lam)
    assert found.advantages_NT[mask].tolist() == pytest.approx(want, abs=1e-6)
    if schedule == "none":
        assert (found.exec_variance, found.metrics) == (None, {})
    else:
        # execution: 1 and .3, mean .65: variance .35^2, taken before the pooling
        assert found.exec_variance == pytest.approx(0.35**2)
        assert found.metrics == {"planning/token_ratio": 0.5}


@pytest.mark.parametrize("scope", ["completion", "batch"])
def test_the_order_is_sepa_gtpo_hicra(letters, scope):
    rows = [
        [("go", "up, let me check it"), ("on", "start over")],
        [("go", "down and down")],
        [("go", "wait let me")],
    ]
    batch = batch_of([conversation(letters.tokenizer, own) for own in rows])
    mask = batch.action_mask_NT
    generator = torch.Generator().manual_seed(0)
    advantages = torch.randn(mask.shape, generator=generator).where(mask, 0)
    signal = torch.rand(mask.shape, generator=generator).where(mask, 0) * 3
    section = {
        "gtpo_beta": 0.5, "hicra_alpha": 0.4, "scope": scope, "sepa": {"schedule": "linear"},
    }  # fmt: skip
    found = shape(
        letters,
        advantages,
        batch,
        signals_of(batch, old_logp=-signal),
        ShapingConfig.model_validate(section),
        sepa_lambda=0.7,
    )
    plan = planning_mask(letters, batch, grams=DEFAULT_GRAMS)
    pooled = sepa_pool(signal, plan, mask, lam=0.7, scope=scope)
    weighed = gtpo(advantages, pooled, mask, beta=0.5, scope=scope)
    assert torch.equal(found.advantages_NT, hicra(weighed, plan, mask, alpha=0.4))
    assert found.exec_variance == exec_variance(signal, plan, mask)
    assert found.metrics["planning/token_ratio"] == pytest.approx(int(plan.sum()) / int(mask.sum()))
    # Each stage did something.
    no_sepa = gtpo(advantages, signal, mask, beta=0.5, scope=scope)
    for other in (weighed, hicra(no_sepa, plan, mask, alpha=0.4), advantages):
        assert not torch.equal(found.advantages_NT, other)


def test_everything_off_is_the_same_tensor(letters):
    batch = batch_of([make_episode([make_turn([2, 3])])])
    advantages = torch.ones(batch.ids_NT.shape)
    # A signal that no stage may look at.
    signals = signals_of(batch, old_logp=torch.full(batch.ids_NT.shape, torch.nan))
    found = shape(letters, advantages, batch, signals, ShapingConfig(), sepa_lambda=0.0)
    assert found.advantages_NT is advantages
    assert (found.metrics, found.exec_variance) == ({}, None)


def test_hicra_alone_looks_at_no_signal(planned):
    nan = torch.full((1, 5), torch.nan)
    found, mask = by_hand(planned, {"hicra_alpha": 0.5}, signal=nan, advantage=-2.0)
    assert found.advantages_NT[mask].tolist() == [-1.0, -2.0, -2.0, -1.0]
    assert found.exec_variance is None


def test_gtpo_alone_looks_for_no_phrase(letters, monkeypatch):
    monkeypatch.setattr("rltune.trainer.credit.shaping.planning_mask", None)
    found, mask = by_hand(letters, {"gtpo_beta": 2.0}, advantage=1.0)
    want = [0.052632, 1.105263, 0.0, 3.210526]  # MATHS 5
    assert found.advantages_NT[mask].tolist() == pytest.approx(want, abs=1e-6)


def test_the_two_signals_are_two():
    config = config_of("sokoban")
    train_state = make_train_state(load(config), config)
    tokenizer = train_state.policy.tokenizer
    said = ["<answer>Up||Left</answer>", "<answer>Down</answer>"]
    batch = batch_of([conversation(tokenizer, [("#P_X√#", one)]) for one in said])
    scored = score_batch(
        train_state, batch, temperature=0.8, parts=parts_of(batch, 1), with_entropy=True
    )
    plain = score_batch(train_state, batch, temperature=0.8, parts=parts_of(batch, 1))
    assert plain.entropy_NT is None
    assert torch.equal(plain.old_logp_NT, scored.old_logp_NT)
    mask = batch.action_mask_NT
    with torch.no_grad():
        for row in range(len(batch)):
            ids = batch.ids_NT[row][None]
            logp = (train_state.policy.model(input_ids=ids).logits[0] / 0.8).log_softmax(-1)
            entropy = -(logp.exp() * logp).sum(-1)
            before = torch.roll(mask[row], -1)
            got = scored.entropy_NT[row][mask[row]]
            torch.testing.assert_close(got, entropy[before], rtol=1e-4, atol=1e-5)
    advantages = torch.ones(mask.shape).where(mask, 0)
    found = {}
    for name, signal in (("surprisal", -scored.old_logp_NT), ("entropy", scored.entropy_NT)):
        section = ShapingConfig(signal=name, gtpo_beta=0.5)
        shaped = shape(train_state.policy, advantages, batch, scored, section, sepa_lambda=0.0)
        found[name] = shaped.advantages_NT
        assert torch.equal(found[name], gtpo(advantages, signal, mask, beta=0.5))
    assert not torch.equal(found["surprisal"], found["entropy"])


def test_the_entropy_is_asked_for_where_it_is_used():
    assert needs_entropy(ShapingConfig(signal="entropy", gtpo_beta=0.1))
    assert not needs_entropy(ShapingConfig(signal="entropy", hicra_alpha=0.1))
    assert not needs_entropy(ShapingConfig(signal="surprisal", gtpo_beta=0.1))


def test_without_the_entropy_it_says_so(letters):
    batch = batch_of([make_episode([make_turn([2, 3])])])
    config = ShapingConfig(signal="entropy", gtpo_beta=0.1)
    ones = torch.ones(batch.ids_NT.shape)
    with pytest.raises(ValueError, match="scored without their entropy"):
        shape(letters, ones, batch, signals_of(batch), config, sepa_lambda=0.0)
