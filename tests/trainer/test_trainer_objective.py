"""The whole objective: who gets a gradient (C6), and what must not change it (C1, C10)."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from credit_cases import parts_of

from rltune.losses.kl import full_kl
from rltune.losses.reduce import AGGREGATIONS, CONSTANT
from rltune.policy.load import weights_digest
from rltune.trainer.credit.estimate import Credit, estimate
from rltune.trainer.objective import MiniBatch, update
from rltune.trainer.ranks.scoring import score_actions
from rltune.trainer.train_state import make_train_state, score_batch

KL_TYPES = ("k1", "k2", "k3", "abs", "full", "k1+", "k3+", "abs+", "full+")
ONE_STEP = {"optim__mini_batch_size": 8, "optim__micro_batch_size": 4, "optim__grad_clip": 1e9}
ALL_TERMS = {
    "advantage": {"kind": "gae"},
    "loss__entropy_coeff": 0.01,
    "loss__use_kl_loss": True,
    "loss__kl_loss_coef": 0.1,
}


@pytest.fixture
def prepare(small_policy, make_config, sample_batch):
    """Return a maker of (state, mini-batch, config), the policy a little off its reference."""

    def make(*, dtype="float32", advantages=None, drift=0.05, **changes):
        config = make_config(**{**ONE_STEP, **changes})
        _, batch = sample_batch(config, small_policy())
        train_state = make_train_state(small_policy(dtype=dtype), config)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for module in filter(None, (train_state.policy.model, train_state.critic)):
                for parameter in module.parameters():
                    noise = torch.randn(parameter.shape, generator=generator)
                    parameter.add_(drift * noise.to(parameter.dtype))
        signals = score_batch(train_state, batch, temperature=1.0, parts=parts_of(batch, 8))
        credit = estimate(batch, signals, config.advantage)
        if advantages is not None:
            fixed = torch.full_like(credit.advantages_NT, advantages)
            credit = replace(credit, advantages_NT=fixed)
        return train_state, MiniBatch(batch, signals, credit), config

    return make


def make_step(train_state, data, config):
    return update(train_state, data, config, step=1, kl_coef=config.loss.kl_loss_coef)


def gradients(train_state):
    critic = [] if train_state.critic is None else list(train_state.critic.parameters())
    return [p.grad.clone() for p in [*train_state.policy.model.parameters(), *critic]]


def states(backbone, store):
    """Keep the gradient of each forward pass's hidden states."""

    def hook(_, __, output):
        if output.last_hidden_state.requires_grad:
            output.last_hidden_state.retain_grad()
            store.append(output.last_hidden_state)

    return backbone.register_forward_hook(hook)


def test_only_the_places_before_sampled_tokens_get_a_gradient(prepare):
    train_state, data, config = prepare(**ALL_TERMS, optim__micro_batch_size=8)
    train_state.why_rows = "places are counted by row"
    policy_states, critic_states = [], []
    states(train_state.policy.model.base_model, policy_states)
    states(train_state.critic.backbone, critic_states)
    make_step(train_state, data, config)
    # The rows come in the order that the step shuffled them into, then shortest first.
    for (hidden,) in (policy_states, critic_states):
        is_touched = (hidden.grad != 0).any(-1)
        assert not is_touched.all()
        counts = is_touched.sum(1).tolist()
        assert sorted(counts) == sorted(data.batch.action_mask_NT.sum(1).tolist())
        places = {tuple(row.nonzero()[:, 0].tolist()) for row in is_touched}
        mask = data.batch.action_mask_NT[:, 1:]
        assert places == {tuple(row.nonzero()[:, 0].tolist()) for row in mask}


def test_what_lies_outside_the_mask_does_not_matter(prepare):
    """NaN in every float there and any id in the padding: metrics and gradients are bit-equal."""
    train_state, data, config = prepare(**ALL_TERMS)
    want = (
        make_step(train_state, data, config),
        gradients(train_state),
    )

    train_state, data, config = prepare(**ALL_TERMS)
    mask = data.batch.action_mask_NT

    def spoil(tensor):
        return tensor.where(mask, torch.nan)

    is_padding = mask.flip(1).cumsum(1).flip(1) == 0
    assert is_padding.any()
    ids = data.batch.ids_NT.masked_fill(is_padding, 9)
    rollout = spoil(data.batch.rollout_logprobs_NT)
    batch = replace(data.batch, ids_NT=ids, rollout_logprobs_NT=rollout)
    signals = replace(
        data.signals,
        old_logp_NT=spoil(data.signals.old_logp_NT),
        ref_logp_NT=spoil(data.signals.ref_logp_NT),
        values_NT=spoil(data.signals.values_NT),
    )
    credit = Credit(spoil(data.credit.advantages_NT), spoil(data.credit.returns_NT))
    got = (
        update(
            train_state,
            MiniBatch(batch, signals, credit),
            config,
            step=1,
            kl_coef=config.loss.kl_loss_coef,
        ),
        gradients(train_state),
    )
    assert got[0] == want[0]
    assert all(torch.equal(a, b) for a, b in zip(got[1], want[1], strict=True))


def test_rows_that_were_masked_out_change_nothing(prepare):
    """The same gradient with two rows masked as without them."""
    got, want = {}, {}
    for kind, store in (("mask", got), ("drop", want)):
        train_state, data, config = prepare(**ALL_TERMS)
        keep = torch.arange(8) < 6
        if kind == "mask":
            mask = data.batch.action_mask_NT & keep[:, None]
            data = replace(data, batch=replace(data.batch, action_mask_NT=mask))
        else:
            data = data.rows(keep.nonzero()[:, 0])
        store["metrics"] = make_step(train_state, data, config)
        store["gradients"] = gradients(train_state)
    assert got["metrics"] == pytest.approx(want["metrics"], rel=1e-4, abs=1e-6)
    for a, b in zip(got["gradients"], want["gradients"], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("backbone", ["own", "policy"])
def test_the_micro_batch_split_changes_nothing(prepare, aggregation, backbone):
    results = []
    for size in (8, 1, 2, 4):
        train_state, data, config = prepare(
            **ALL_TERMS,
            dtype="float64",
            loss__aggregation=aggregation,
            loss__sum_norm=7.0,
            critic__backbone=backbone,
            optim__micro_batch_size=size,
        )
        results.append(
            (
                make_step(train_state, data, config),
                gradients(train_state),
            )
        )
    (metrics, whole), *others = results
    assert all(g.dtype == torch.float64 for g in whole)
    assert sum(g.abs().sum() for g in whole) > 0
    for other, split in others:
        assert other == pytest.approx(metrics, rel=1e-9, abs=1e-12)
        for a, b in zip(split, whole, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def masked(data, rows):
    """Return the data with all but the given rows masked out."""
    keep = torch.isin(torch.arange(len(data.batch)), torch.tensor(rows))
    mask = data.batch.action_mask_NT & keep[:, None]
    return replace(data, batch=replace(data.batch, action_mask_NT=mask))


LEFT = {
    "mask": masked,  # `on_drop: mask`
    "drop": lambda data, rows: data.rows(torch.tensor(rows)),  # the mini-batch is cut short
}


@pytest.mark.parametrize("how", LEFT)
@pytest.mark.parametrize("backbone", ["own", "policy"])
def test_one_row_left_pulls_with_the_weight_of_one_row(prepare, how, backbone):
    """Policy, entropy, KL and value loss: the gradients of the parts add up to that of the whole.

    Each part divided by what it trains on would add up to a multiple of it.
    """
    changes = {
        **ALL_TERMS,
        "dtype": "float64",
        "loss__aggregation": CONSTANT,
        "loss__sum_norm": 7.0,
        "critic__backbone": backbone,
    }
    got = []
    for rows in (range(8), [0], range(1, 8)):
        train_state, data, config = prepare(**changes)
        make_step(train_state, LEFT[how](data, rows), config)
        got.append(gradients(train_state))
    for whole, one, others in zip(*got, strict=True):
        torch.testing.assert_close(one + others, whole, rtol=1e-9, atol=1e-12)


def test_metrics_stay_means_over_tokens_under_a_constant_divisor(prepare):
    """One unit of entropy, KL and value loss in every run, whatever the gradient is divided by."""
    names = ("actor/entropy", "actor/kl_loss", "critic/vf_loss", "actor/ppo_kl")
    found = []
    for aggregation in ("token-mean", CONSTANT):
        train_state, data, config = prepare(**ALL_TERMS, loss__aggregation=aggregation)
        metrics = make_step(train_state, data, config)
        found.append([metrics[name] for name in names])
    assert found[0] == found[1]


def test_mini_batches_are_optimiser_steps(prepare):
    train_state, data, config = prepare(optim__mini_batch_size=2, optim__micro_batch_size=2)
    assert make_step(train_state, data, config)["budget/optimizer_steps"] == 4
    train_state, data, config = prepare(optim__mini_batch_size=4, optim__epochs=3)
    assert make_step(train_state, data, config)["budget/optimizer_steps"] == 6


@torch.no_grad()
def entropy(train_state, data, *rows):
    """Return the mean entropy of the sampled tokens, of all rows or the given ones."""
    batch = data.batch.rows(torch.tensor(rows)) if rows else data.batch
    ids, mask = batch.ids_NT, batch.action_mask_NT
    scores = score_actions(train_state.policy.model, ids, mask, temperature=1.0, entropy="value")
    return scores.tokens.entropy_M.mean().item()


def test_the_entropy_bonus_raises_entropy(prepare):
    train_state, data, config = prepare(advantages=0.0, loss__entropy_coeff=1.0, optim__lr=1e-4)
    before = entropy(train_state, data)
    metrics = make_step(train_state, data, config)
    assert metrics["actor/entropy"] == pytest.approx(before, rel=1e-5)
    assert metrics["actor/grad_norm"] > 0
    assert entropy(train_state, data) > before + 1e-3


def test_a_coefficient_of_0_leaves_no_trace(prepare):
    train_state, data, config = prepare(advantages=0.0, loss__entropy_coeff=0.0)
    metrics = make_step(train_state, data, config)
    assert metrics["actor/entropy"] > 0  # still measured
    assert all((g == 0).all() for g in gradients(train_state))


def test_advantages_move_the_policy_their_way(prepare):
    for advantage in (1.0, -1.0):
        train_state, data, config = prepare(advantages=advantage, optim__lr=1e-4)
        mask = data.batch.action_mask_NT
        make_step(train_state, data, config)
        after = score_batch(
            train_state, data.batch, temperature=1.0, parts=parts_of(data.batch, 8)
        ).old_logp_NT
        assert ((after - data.signals.old_logp_NT)[mask].mean() * advantage).item() > 0


def exact_kl(train_state, data):
    """The mean exact KL over sampled tokens, by full forward passes of both models."""
    ids = data.batch.ids_NT
    mask = data.batch.action_mask_NT[:, 1:]
    logits = train_state.policy.model(input_ids=ids).logits[:, :-1][mask]
    with torch.no_grad():
        reference = train_state.reference(input_ids=ids).logits[:, :-1][mask]
    return full_kl(logits, reference).mean()


def kl_changes(kl_type, coefficient=1.0, **changes):
    return {
        "advantages": 0.0,
        "loss__use_kl_loss": True,
        "loss__kl_loss_coef": coefficient,
        "loss__kl_type": kl_type,
        "optim__weight_decay": 0.0,
        **changes,
    }


@pytest.mark.parametrize("kl_type", KL_TYPES)
def test_the_reference_never_moves(prepare, kl_type):
    train_state, data, config = prepare(**kl_changes(kl_type))
    before = weights_digest(train_state.reference)
    metrics = make_step(train_state, data, config)
    assert np.isfinite(metrics["actor/kl_loss"])
    assert metrics["actor/grad_norm"] > 0
    assert weights_digest(train_state.reference) == before
    assert all(p.grad is None for p in train_state.reference.parameters())


@pytest.mark.parametrize("kl_type", ["k2", "full", "k1+", "k3+", "full+"])
def test_the_kl_term_pulls_towards_the_reference(prepare, kl_type):
    train_state, data, config = prepare(**kl_changes(kl_type, optim__lr=1e-4, optim__epochs=5))
    before = exact_kl(train_state, data).item()
    make_step(train_state, data, config)
    assert exact_kl(train_state, data).item() < before


@pytest.mark.parametrize("kl_type", KL_TYPES)
def test_kl_is_0_at_the_start(prepare, kl_type):
    train_state, data, config = prepare(**kl_changes(kl_type), drift=0.0)
    assert make_step(train_state, data, config)["actor/kl_loss"] == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_full_kl_is_exact_and_so_is_its_gradient(prepare, temperature):
    train_state, data, config = prepare(
        **kl_changes("full"), dtype="float64", rollout__temperature=temperature
    )
    ids = data.batch.ids_NT
    mask = data.batch.action_mask_NT[:, 1:]
    parameters = list(train_state.policy.model.parameters())
    logits = train_state.policy.model(input_ids=ids).logits[:, :-1][mask] / temperature
    reference = train_state.reference(input_ids=ids).logits[:, :-1][mask] / temperature
    want = full_kl(logits, reference).mean()
    want_gradients = torch.autograd.grad(want, parameters)
    metrics = make_step(train_state, data, config)
    assert metrics["actor/kl_loss"] == pytest.approx(want.item(), rel=1e-9)
    for parameter, gradient in zip(parameters, want_gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-8, atol=1e-12)


def test_full_plus_has_the_value_of_full_and_the_gradient_of_k2(prepare):
    found = {}
    for kl_type in ("full", "k2", "full+"):
        train_state, data, config = prepare(**kl_changes(kl_type), dtype="float64")
        metrics = make_step(train_state, data, config)
        found[kl_type] = metrics["actor/kl_loss"], gradients(train_state)
    assert found["full+"][0] == pytest.approx(found["full"][0], rel=1e-12)
    assert found["full+"][0] != pytest.approx(found["k2"][0], rel=1e-3)
    for a, b in zip(found["full+"][1], found["k2"][1], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["grpo", "gae"])
def test_in_the_first_optimiser_step_every_loss_has_one_gradient(prepare, kind):
    """What S6 says of a batch with one optimiser step, and of it alone: the ratio is 1 there."""
    found = {}
    for loss in ("ppo", "gspo", "cispo", "reinforce", "turn"):
        train_state, data, config = prepare(
            dtype="float64", advantage={"kind": kind}, loss__kind=loss, loss__aggregation=CONSTANT
        )
        make_step(train_state, data, config)
        found[loss] = gradients(train_state)
    for loss in found:
        for a, b in zip(found[loss], found["reinforce"], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_only_the_critic_learns_while_it_warms_up(prepare):
    for step, is_moved in ((2, False), (3, True)):
        train_state, data, config = prepare(advantage={"kind": "gae"}, critic__warmup_steps=2)
        before = [weights_digest(m) for m in (train_state.policy.model, train_state.critic)]
        update(train_state, data, config, step=step, kl_coef=config.loss.kl_loss_coef)
        assert (weights_digest(train_state.policy.model) != before[0]) is is_moved
        assert weights_digest(train_state.critic) != before[1]


def test_a_mini_batch_without_anything_to_learn_still_steps(prepare):
    """Also as the very first one: momentum and weight decay do not know when a trial began."""
    train_state, data, config = prepare(optim__weight_decay=0.5, optim__mini_batch_size=4)
    nothing = replace(data.batch, action_mask_NT=torch.zeros_like(data.batch.action_mask_NT))
    metrics = make_step(train_state, replace(data, batch=nothing), config)
    assert metrics == {"budget/optimizer_steps": 2.0, "actor/grad_norm": 0.0}
    state = train_state.actor_optimizer.state_dict()["state"]
    assert len(state) == len(list(train_state.policy.model.parameters()))
    assert {float(entry["step"]) for entry in state.values()} == {2.0}


def test_metrics_are_means_over_the_mini_batches_that_have_them(prepare):
    """Half the rows masked: entropy is that of the other half, not half of it."""
    train_state, data, config = prepare(
        advantages=0.0, optim__mini_batch_size=1, optim__micro_batch_size=1, optim__weight_decay=0.0
    )
    keep = torch.arange(8) < 4
    mask = data.batch.action_mask_NT & keep[:, None]
    masked = replace(data, batch=replace(data.batch, action_mask_NT=mask))
    per_row = [entropy(train_state, data, row) for row in range(4)]
    metrics = make_step(train_state, masked, config)
    assert metrics["actor/entropy"] == pytest.approx(np.mean(per_row), rel=1e-4)
    assert metrics["budget/optimizer_steps"] == 8


def test_a_gradient_that_is_not_finite_stops_the_trial_before_the_step(prepare):
    from rltune.errors import DivergedError

    train_state, data, config = prepare(advantages=float("inf"))
    before = weights_digest(train_state.policy.model)
    with pytest.raises(DivergedError, match=r"^step 7: .*actor/pg_loss is .*lower optim\.lr"):
        update(train_state, data, config, step=7, kl_coef=config.loss.kl_loss_coef)
    assert weights_digest(train_state.policy.model) == before


def test_the_shuffle_follows_seed_step_and_epoch(prepare):
    train_state, data, config = prepare(optim__mini_batch_size=2, optim__micro_batch_size=2)
    one = make_step(train_state, data, config)
    train_state, data, config = prepare(optim__mini_batch_size=2, optim__micro_batch_size=2)
    assert make_step(train_state, data, config) == one
    train_state, data, config = prepare(optim__mini_batch_size=2, optim__micro_batch_size=2)
    assert update(train_state, data, config, step=2, kl_coef=config.loss.kl_loss_coef) != one
