"""Information gain through the trainer: one packed forward against plain ones."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from credit_cases import ANY, GRPO, batch_of, config_of, sample, shipped

from rltune.advantages.info_gain import TurnGroupNormalizer, accumulate
from rltune.losses.turn_clip import AdaptiveTurnClipper
from rltune.maths.turns import broadcast_turns, has_turn, turn_count
from rltune.policy.gold import encode_gold
from rltune.rollout.episode import Probes
from rltune.trainer.batches.micro_batches import Limit, cut_batch
from rltune.trainer.credit.attribution import by_information_gain, gold_reader
from rltune.trainer.credit.estimate import outcome_of
from rltune.trainer.credit.info_gain import information_gain
from rltune.trainer.train_state import make_train_state, score_batch
from rltune_envs.base import GoldResponse

WORLDS = {"multihop_qa": 0.7, "sokoban": 1.5}  # how hot: answers of several turns, dead ends


@pytest.fixture(scope="module")
def played():
    return {
        kind: sample(kind, probes=Probes(gold=True), temperature=heat)
        for kind, heat in WORLDS.items()
    }


@torch.no_grad()
def plain_logp(policy, context, gold, answer):
    """Score one answer at one context by a forward of its own."""
    ids, scored = encode_gold(policy.tokenizer, gold.before, answer, gold.after)
    row = torch.tensor([*context, *ids])[None]
    logp = policy.model(input_ids=row, use_cache=False).logits[0].log_softmax(-1)
    places = [len(context) + i for i, is_scored in enumerate(scored) if is_scored]
    return torch.stack([logp[place - 1, row[0, place]] for place in places]).mean().item()


def plain_gains(policy, episode, ig_type):
    """Return the gain of each turn but the last, by the definition."""
    context, values = [], []
    for turn in episode.turns:
        context += turn.prompt_ids
        scores = [plain_logp(policy, context, turn.gold, a) for a in turn.gold.golds]
        values.append(max(scores, default=-torch.inf))
        context += turn.sampled_ids
    if ig_type == "prob_diff":
        values = torch.tensor(values).exp().tolist()
    return [after - before for before, after in pairwise(values)]


def gains_of(kind, episodes, *, batch=None, ig_type="prob_diff", size=4):
    batch = batch_of(episodes) if batch is None else batch
    return information_gain(shipped(kind), batch, episodes, ig_type=ig_type, limit=Limit(ANY, size))


def credited(policy, batch, episodes, config):
    """Return the credit by the gains, from the pass that scores the old logprobs."""
    reader = gold_reader(policy, batch, episodes, config.attribution)
    scored(policy, batch, gold=reader)
    return by_information_gain(
        batch,
        reader.gains(),
        outcome_of(batch, config.advantage),
        config.attribution,
        turn_clip_beta=getattr(config.loss, "turn_clip_beta", 0.0),
    )


def scored(policy, batch, *, gold=None, size=4, train_state=None, pair_cost=None):
    train_state = train_state or make_train_state(policy, config_of("sokoban"))
    tokens = ANY if pair_cost is None else 1000
    parts = cut_batch(batch, Limit(tokens, size, pair_cost))
    return score_batch(train_state, batch, temperature=0.7, parts=parts, gold=gold)


@pytest.mark.parametrize("ig_type", ["prob_diff", "log_prob_diff"])
@pytest.mark.parametrize("kind", WORLDS)
def test_gains_are_those_of_plain_forwards(played, kind, ig_type):
    episodes = played[kind]
    gains = gains_of(kind, episodes, ig_type=ig_type)
    n_gains = 0
    for row, episode in enumerate(episodes):
        want = torch.tensor(plain_gains(shipped(kind), episode, ig_type))
        is_finite = want.isfinite()
        assert gains.has_ig_NK[row, : len(want)].tolist() == is_finite.tolist()
        assert not gains.has_ig_NK[row, len(want) :].any()
        got = gains.ig_NK[row, : len(want)][is_finite]
        torch.testing.assert_close(got, want[is_finite], rtol=1e-4, atol=1e-5)
        n_gains += int(is_finite.sum())
    assert n_gains >= 8


def test_the_worlds_have_what_is_to_be_tested(played):
    turns = [turn for episode in played["sokoban"] for turn in episode.turns]
    assert any(not turn.gold.golds for turn in turns)  # dead ends
    assert len({len(episode.turns) for episode in played["multihop_qa"]}) > 1


def test_a_dead_end_is_probability_0_and_no_log(played):
    gains = gains_of("sokoban", played["sokoban"])
    logs = gains_of("sokoban", played["sokoban"], ig_type="log_prob_diff")
    dead = [
        (row, k)
        for row, episode in enumerate(played["sokoban"])
        for k, (turn, later) in enumerate(pairwise(episode.turns))
        if turn.gold.golds and not later.gold.golds
    ]
    assert dead
    for place in dead:
        assert gains.has_ig_NK[place]
        assert gains.ig_NK[place] < 0
        assert not logs.has_ig_NK[place]


@pytest.mark.parametrize("mode", ["joint", "separate", "turn-group", "turn-group-v1d"])
def test_advantages_are_the_pure_functions_of_plain_gains(played, mode):
    episodes = played["multihop_qa"]
    policy, batch = shipped("multihop_qa"), batch_of(episodes)
    turn_ids = batch.turn_ids_NT
    n = turn_count(turn_ids)
    ig, has_ig = torch.zeros(len(batch), n), torch.zeros(len(batch), n, dtype=torch.bool)
    for row, episode in enumerate(episodes):
        plain = plain_gains(policy, episode, "prob_diff")
        ig[row, : len(plain)], has_ig[row, : len(plain)] = torch.tensor(plain), True
    outcome, group = batch.rewards_N, batch.group_N
    normalised = TurnGroupNormalizer(mode=mode)(outcome, ig, has_ig, group)
    want = accumulate(
        normalised,
        has_ig,
        has_turn(turn_ids, n_turns=n),
        gamma=0.9,
        ig_coef=0.3,
        is_rescaled=mode == "turn-group-v1d",
    )
    beta = 0.25
    section = {"kind": "info_gain", "mode": mode, "ig_coef": 0.3, "gamma": 0.9}
    loss = {"kind": "turn", "turn_clip_beta": beta}
    config = config_of("multihop_qa", attribution=section, advantage=GRPO, loss=loss)
    found = credited(policy, batch, episodes, config)
    # A gain is divided by its group's std, which can be small.
    close = {"rtol": 2e-3, "atol": 2e-3}
    torch.testing.assert_close(found.advantages_NT, broadcast_turns(want, turn_ids), **close)
    scale = AdaptiveTurnClipper(beta=beta)(normalised.ig_NK, has_ig)
    on = batch.action_mask_NT
    got_scale = found.clip_scale_NT
    torch.testing.assert_close(got_scale[on], broadcast_turns(scale, turn_ids)[on], **close)
    assert found.metrics["ig/mean"] == pytest.approx(ig[has_ig].mean().item(), abs=1e-5)
    assert found.metrics["ig/turn_0/std"] == pytest.approx(
        ig[:, 0][has_ig[:, 0]].std(correction=0).item(), abs=1e-5
    )


def test_success_is_the_outcome_where_it_is_chosen(played):
    """Of the episodes of Sokoban, whose rewards differ where no success does."""
    episodes = [
        replace(e, success=i % 2 == 0, reward=float(i)) for i, e in enumerate(played["sokoban"])
    ]
    section = {"kind": "info_gain", "ig_coef": 0.0}
    advantage = {**GRPO, "outcome": "success"}
    config = config_of("sokoban", attribution=section, advantage=advantage)
    batch = batch_of(episodes)
    got = credited(shipped("sokoban"), batch, episodes, config).advantages_NT
    # Two of four succeed: +-0.5 / (0.5 + 1e-6)
    want = [0.999998 if i % 2 == 0 else -0.999998 for i in range(len(episodes))]
    assert [row[row != 0][0].item() for row in got] == pytest.approx(want)


def test_micro_batches_do_not_matter(played):
    whole = gains_of("multihop_qa", played["multihop_qa"], size=12)
    parts = gains_of("multihop_qa", played["multihop_qa"], size=1)
    assert torch.equal(whole.has_ig_NK, parts.has_ig_NK)
    torch.testing.assert_close(whole.ig_NK, parts.ig_NK, rtol=1e-4, atol=1e-6)


def some_trained(episodes):
    """Return a batch of which a fifth of the rows is not trained on."""
    batch = batch_of(episodes)
    is_on_N = torch.arange(len(batch)) % 5 > 0
    return replace(batch, action_mask_NT=batch.action_mask_NT & is_on_N[:, None]), is_on_N


def watch(model, monkeypatch):
    """Return a list that gets the tokens of each forward pass of a model."""
    forward, sizes = model.base_model.forward, []

    def watched(*given, input_ids, **keywords):
        sizes.append(input_ids.numel())
        return forward(*given, input_ids=input_ids, **keywords)

    monkeypatch.setattr(model.base_model, "forward", watched)
    return sizes


@pytest.mark.parametrize("size", [1, 5, 12])
@pytest.mark.parametrize("kind", WORLDS)
def test_the_pass_of_the_old_logprobs_gives_the_same_gains(played, kind, size, monkeypatch):
    """And the copies read no row again; the old logprobs are those without, bit for bit."""
    episodes, policy = played[kind], shipped(kind)
    batch, is_on_N = some_trained(episodes)
    attribution = config_of(kind, attribution={"kind": "info_gain"}).attribution
    want = gains_of(kind, episodes, batch=batch, size=size)
    reader = gold_reader(policy, batch, episodes, attribution)
    train_state = make_train_state(policy, config_of("sokoban"))
    sizes = watch(policy.model, monkeypatch)
    signals = scored(policy, batch, gold=reader, size=size, train_state=train_state)
    gains, n_passes = reader.gains(), len(sizes)
    assert torch.equal(gains.has_ig_NK, want.has_ig_NK)
    torch.testing.assert_close(gains.ig_NK, want.ig_NK, rtol=1e-4, atol=1e-6)
    assert gains.has_ig_NK.any()
    assert not gains.has_ig_NK[~is_on_N].any()
    plain = scored(policy, batch, size=size, train_state=train_state)
    assert torch.equal(signals.old_logp_NT, plain.old_logp_NT)
    assert n_passes == 2 * (len(sizes) - n_passes)  # of a micro-batch: its rows, its answers


@pytest.mark.parametrize("size", [5, 12])
@pytest.mark.parametrize("kind", WORLDS)
def test_rows_that_share_prefixes_take_the_answers_into_their_trees(
    played, kind, size, monkeypatch
):
    """One pass a micro-batch, of little more than its rows; gains and old logprobs to rounding."""
    episodes, policy = played[kind], shipped(kind)
    batch, is_on_N = some_trained(episodes)
    attribution = config_of(kind, attribution={"kind": "info_gain"}).attribution
    want = gains_of(kind, episodes, batch=batch, size=size)
    reader = gold_reader(policy, batch, episodes, attribution)
    train_state = make_train_state(policy, config_of("sokoban"))
    watched = {"size": size, "train_state": train_state, "pair_cost": train_state.pair_cost}
    sizes = watch(policy.model, monkeypatch)
    signals = scored(policy, batch, gold=reader, **watched)
    with_gold = list(sizes)
    plain = scored(policy, batch, **watched)
    gains = reader.gains()
    assert torch.equal(gains.has_ig_NK, want.has_ig_NK)
    torch.testing.assert_close(gains.ig_NK, want.ig_NK, rtol=1e-4, atol=1e-6)
    assert gains.has_ig_NK.any()
    assert not gains.has_ig_NK[~is_on_N].any()
    torch.testing.assert_close(signals.old_logp_NT, plain.old_logp_NT, rtol=1e-4, atol=1e-5)
    assert len(with_gold) == len(sizes) / 2
    assert sum(with_gold) < 1.5 * sum(sizes) / 2


def test_a_turn_without_a_gold_answer_takes_the_gains_on_both_its_sides(played):
    row, episode = max(enumerate(played["sokoban"]), key=lambda pair: len(pair[1].turns))
    whole = gains_of("sokoban", played["sokoban"])
    turns = [replace(turn, gold=None) if k == 1 else turn for k, turn in enumerate(episode.turns)]
    episodes = list(played["sokoban"])
    episodes[row] = replace(episode, turns=tuple(turns))
    gains = gains_of("sokoban", episodes)
    want = whole.has_ig_NK.clone()
    want[row, :2] = False
    assert len(turns) > 3
    assert torch.equal(gains.has_ig_NK, want)
    torch.testing.assert_close(gains.ig_NK, whole.ig_NK.where(want, 0), rtol=1e-4, atol=1e-6)


def test_without_any_gold_answer_there_is_no_gain(played):
    episodes = [
        replace(e, turns=tuple(replace(turn, gold=None) for turn in e.turns))
        for e in played["sokoban"]
    ]
    gains = gains_of("sokoban", episodes)
    assert not gains.has_ig_NK.any()
    assert not gains.ig_NK.any()


def test_several_right_answers_count_with_the_best(played):
    """An answer that nobody would give changes nothing beside a better one."""
    episodes = []
    for episode in played["multihop_qa"]:
        turns = []
        for turn in episode.turns:
            (only,) = turn.gold.golds[:1]
            golds = ("Faleth", only) if only != "Faleth" else (only,)
            turns.append(replace(turn, gold=GoldResponse(turn.gold.before, golds, "</answer>")))
        episodes.append(replace(episode, turns=tuple(turns)))
    policy = shipped("multihop_qa")
    gains = gains_of("multihop_qa", episodes)
    for row, episode in enumerate(episodes):
        want = plain_gains(policy, episode, "prob_diff")
        assert gains.ig_NK[row, : len(want)].tolist() == pytest.approx(want, abs=1e-5)


def test_the_policy_is_left_as_it_was(played):
    model = shipped("sokoban").model
    gains = gains_of("sokoban", played["sokoban"])
    assert not gains.ig_NK.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())
