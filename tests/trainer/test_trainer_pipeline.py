"""The first stage of the credit, every estimator; and every loss and correction, end to end."""

import inspect
import math
import re
from dataclasses import fields, replace
from typing import get_args

import pytest
import torch
from credit_cases import (
    batch_of,
    config_of,
    gains_for,
    load,
    make_episode,
    make_turn,
    nobody,
    parts_of,
    sample,
    signals_of,
)

from rltune.advantages import ESTIMATORS
from rltune.advantages.gae import gae
from rltune.advantages.gae_bilevel import gae_bilevel
from rltune.advantages.grpo import broadcast, grpo, grpo_center
from rltune.advantages.maxrl import maxrl
from rltune.advantages.reinforce import reinforce_pp, reinforce_pp_baseline
from rltune.advantages.rloo import rloo
from rltune.errors import TrialError
from rltune.losses.correction import rollout_weights
from rltune.maths.masked import masked_whiten
from rltune.rollout.episode import Probes
from rltune.spec.estimators import ESTIMATOR_KINDS, GROUP_KINDS
from rltune.spec.keys import variants
from rltune.spec.schema.advantage import Advantage
from rltune.trainer.credit.estimate import (
    TOKEN_ESTIMATORS,
    Credit,
    episode_advantages,
    estimate,
)
from rltune.trainer.credit.stages import assign_credit
from rltune.trainer.objective import MiniBatch, update
from rltune.trainer.policy_loss import POLICY_LOSSES, LossInputs
from rltune.trainer.train_state import make_train_state, score_batch
from rltune.types import TrialStatus

CLASSES = {one.model_fields["kind"].default: one for one in get_args(Advantage)}


def two_groups():
    """Two prompts of three episodes; the best by reward is not the one that succeeded."""
    rows = [  # (rewards of its turns, success)
        ((1.0, 2.0), False), ((0.5, 0.0), True), ((0.0, 0.0), False),
        ((4.0,), True), ((1.0, 1.0, 1.0), False), ((0.25,), True),
    ]  # fmt: skip
    episodes = [
        make_episode(
            [make_turn(range(2, 4 + k), reward=r) for k, r in enumerate(rewards)],
            group=index // 3,
            success=success,
        )
        for index, (rewards, success) in enumerate(rows)
    ]
    return batch_of(episodes)


BATCH = two_groups()
MASK = BATCH.action_mask_NT
REWARD, SUCCESS = BATCH.rewards_N, BATCH.success_N.float()
GROUP = BATCH.group_N
VALUES = torch.arange(MASK.numel()).reshape(MASK.shape).sin().where(MASK, 0)
TO_GO, TURNS = BATCH.rewards_NT, BATCH.turn_rewards_NT
LEVELS = {"gamma": 0.9, "lam": 0.8, "gamma_turn": 0.7, "lam_turn": 0.6}


def spread(advantages_N):
    return broadcast(advantages_N, MASK)


def white(advantages_NT):
    return masked_whiten(advantages_NT, MASK)


CASES = {  # section -> what the pure function gives
    "gae": (
        {"kind": "gae", "gamma": 0.9, "lam": 0.8},
        lambda: white(gae(TO_GO, VALUES, MASK, gamma=0.9, lam=0.8).advantages_NT),
    ),
    "gae_bilevel": (
        {"kind": "gae_bilevel", **LEVELS},
        lambda: white(
            gae_bilevel(
                TURNS, VALUES, MASK, BATCH.turn_ids_NT, **LEVELS
            ).advantages_NT
        ),
    ),
    "grpo": ({"kind": "grpo"}, lambda: spread(grpo(REWARD, GROUP, normalize_std=True, ddof=1))),
    "grpo, population": (
        {"kind": "grpo", "ddof": 0},
        lambda: spread(grpo(REWARD, GROUP, normalize_std=True, ddof=0)),
    ),
    "dr.grpo of success": (
        {"kind": "grpo", "normalize_std": False, "outcome": "success"},
        lambda: spread(grpo(SUCCESS, GROUP, normalize_std=False)),
    ),
    "grpo_center": ({"kind": "grpo_center"}, lambda: spread(grpo_center(REWARD, GROUP))),
    "rloo": ({"kind": "rloo"}, lambda: spread(rloo(REWARD, GROUP))),
    "rloo of success": (
        {"kind": "rloo", "outcome": "success"}, lambda: spread(rloo(SUCCESS, GROUP)),
    ),
    "maxrl": ({"kind": "maxrl"}, lambda: spread(maxrl(SUCCESS, GROUP, eps=1e-6))),
    "maxrl of rewards": (
        {"kind": "maxrl", "outcome": "reward", "eps": 0.5},
        lambda: spread(maxrl(REWARD, GROUP, eps=0.5)),
    ),
    "reinforce_pp": (
        {"kind": "reinforce_pp", "gamma": 0.9},
        lambda: white(reinforce_pp(TO_GO, MASK, gamma=0.9)),
    ),
    "reinforce_pp_baseline": (
        {"kind": "reinforce_pp_baseline"},
        lambda: white(spread(reinforce_pp_baseline(REWARD, GROUP))),
    ),
    # Ranks among three, by hand: (below - above) / others
    "custom": (
        {
            "kind": "custom",
            "estimator": "examples.my_advantage:rank",
            "arguments": {"scale": 1.5},
        },
        lambda: spread(torch.tensor([1.5, 0.0, -1.5, 1.5, 0.0, -1.5])),
    ),
    "custom, success": (
        {"kind": "custom", "estimator": "examples.my_advantage:rank", "outcome": "success"},
        lambda: spread(torch.tensor([-0.5, 1.0, -0.5, 0.5, -1.0, 0.5])),
    ),
}  # fmt: skip


def estimated(section, batch=BATCH, values=VALUES):
    config = CLASSES[section["kind"]].model_validate(section)
    return estimate(batch, signals_of(batch, values=values), config)


@pytest.mark.parametrize("case", CASES)
def test_every_estimator_is_its_pure_function(case):
    section, want = CASES[case]
    got = estimated(section).advantages_NT
    assert torch.equal(got, want())
    assert not got[~MASK].any()
    assert got.any()


def test_every_kind_of_the_schema_is_tested_and_no_two_agree():
    assert {section["kind"] for section, _ in CASES.values()} == set(CLASSES)
    found = [estimated(section).advantages_NT for section, _ in CASES.values()]
    pairs = [(a, b) for i, a in enumerate(found) for b in found[:i]]
    assert not any(torch.equal(a, b) for a, b in pairs)


def test_the_critics_targets_come_along():
    want = gae_bilevel(TURNS, VALUES, MASK, BATCH.turn_ids_NT, **LEVELS)
    credit = estimated({"kind": "gae_bilevel", **LEVELS})
    assert torch.equal(credit.returns_NT, want.returns_NT)
    assert all(
        estimated(section).returns_NT is None
        for section, _ in CASES.values()
        if not section["kind"].startswith("gae")
    )


def test_an_episode_alone_in_its_group():
    alone = BATCH.rows(torch.tensor([0, 3, 4]))
    got = estimated({"kind": "grpo", "singleton": 0.5}, alone, None).advantages_NT
    mask = alone.action_mask_NT
    assert (got[0][mask[0]] == 0.5).all()
    # group 1: rewards 4 and 3, std with ddof 1 = sqrt(.5): +-.5 / sqrt(.5)
    assert got[1][mask[1]].tolist() == pytest.approx([0.5**0.5] * 2, rel=1e-5)


WANTED = (
    ". It must return a torch tensor of shape (6,): one finite number per episode "
    "that it was given."
)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("too_short", f"returned a tensor of shape (5,){WANTED}"),
        ("one_column", f"returned a tensor of shape (6, 1){WANTED}"),
        ("not_a_number", f"returned nan for episode 2 (1 of 6 are not finite){WANTED}"),
        ("no_tensor", f"returned a list, [3.0, 0.5, 0.0, 4.0, 3.0, 0.25]{WANTED}"),
        ("yes_or_no", f"returned numbers of type torch.bool{WANTED}"),
    ],
)
def test_an_estimator_of_ones_own_that_cannot_be_used(name, shown):
    path = f"credit_cases:{name}"
    with pytest.raises(TrialError) as caught:
        estimated({"kind": "custom", "estimator": path})
    assert str(caught.value) == f"advantage.estimator {path!r} {shown}"


def test_an_estimator_of_ones_own_that_raises_is_named_with_its_line():
    with pytest.raises(TrialError) as caught:
        estimated({"kind": "custom", "estimator": "credit_cases:divided"})
    assert re.fullmatch(
        r"advantage\.estimator 'credit_cases:divided': it raised ZeroDivisionError: division by "
        r"zero \(.*credit_cases\.py:\d+, in divided\)",
        str(caught.value),
    )


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int64", "int8"])
def test_one_of_another_number_format_is_cast(dtype):
    own = {"kind": "custom", "estimator": "credit_cases:below", "arguments": {"dtype": dtype}}
    want = torch.tensor([2.0, 1.0, 0.0, 2.0, 1.0, 0.0])  # outcomes of its group that are lower
    got = estimated(own).advantages_NT
    assert got.dtype == torch.float32
    assert torch.equal(got, spread(want))


@pytest.mark.parametrize("kind", [*ESTIMATORS, "custom"])
def test_no_estimator_is_asked_about_a_step_of_faults(kind):
    """A retriever that is down for a step must not end the trial."""
    own = {"estimator": "credit_cases:over_the_best"} if kind == "custom" else {}
    config = config_of(advantage={"kind": kind, **own})
    down = replace(BATCH, is_valid_N=torch.zeros(6, dtype=torch.bool))
    found = episode_advantages(down, config.advantage)
    assert found.tolist() == [0.0] * 6


# ---- the update

STEPS = {"budget__steps": 2, "gate__every": 2}
LOSSES = {kind: {"kind": kind} for kind in variants("loss")}
LOSSES |= {
    "turn, tight": {"kind": "turn", "clip_low": 3e-3, "clip_high": 4e-3},
    "kl": {"use_kl_loss": True, "kl_loss_coef": 0.01, "kl_target": 0.05, "kl_horizon": 100.0},
}
CORRECTIONS = tuple(variants("rollout_correction"))
DIAGNOSTICS = {"rollout_corr/kl", "rollout_corr/k3_kl", "rollout_corr/logprob_diff_max"}


def assert_trained(trial):
    result = trial.run()
    assert (result.status, result.final_step) == (TrialStatus.DONE, 2)
    numbers = [value for row in trial.rows for value in row.values() if isinstance(value, float)]
    assert all(map(math.isfinite, numbers))
    assert all(row["actor/grad_norm"] > 0 for row in trial.rows[1:])
    return trial.rows


def test_every_estimator_has_a_function():
    assert {*ESTIMATORS, *TOKEN_ESTIMATORS, "custom"} == set(ESTIMATOR_KINDS)
    assert {*ESTIMATORS, "custom"} == set(GROUP_KINDS)


def test_every_loss_has_a_function():
    assert set(POLICY_LOSSES) == {loss["kind"] for loss in LOSSES.values() if "kind" in loss}


@pytest.mark.parametrize("kind", POLICY_LOSSES)
def test_the_inputs_hold_all_that_a_loss_must_be_given(kind):
    parameters = inspect.signature(POLICY_LOSSES[kind]).parameters.values()
    inputs = {field.name for field in fields(LossInputs)} | {*variants("loss")[kind].model_fields}
    assert {p.name for p in parameters} - inputs <= {"log_ratio_limit"}
    assert all(p.default is not p.empty for p in parameters if p.name not in inputs)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_trains(make_trial, loss):
    rows = assert_trained(make_trial(loss=LOSSES[loss], **STEPS))
    if loss == "kl":
        first, second = rows[1:]
        error = min(max(first["actor/kl_loss"] / 0.05 - 1, -0.2), 0.2)
        assert first["actor/kl_coef"] == 0.01
        assert second["actor/kl_coef"] == pytest.approx(0.01 * (1 + error * 8 / 100), rel=1e-9)


@pytest.mark.parametrize("kind", CORRECTIONS)
def test_every_correction_trains_and_says_how_far_apart_the_engine_is(make_trial, kind):
    rows = assert_trained(make_trial(rollout_correction={"kind": kind}, **STEPS))
    assert set(rows[1]) >= DIAGNOSTICS
    assert abs(rows[1]["rollout_corr/kl"]) < 1e-4  # the same weights, two ways to compute


def assigned(config, episodes, batch, signals, *, ask=nobody, **numbers):
    policy = load(config)
    return assign_credit(
        policy, batch, signals, episodes, config,
        **{"step": 1, "sepa_lambda": 0.0, "scale": 1.0, "ask": ask, **numbers},
        gains=gains_for(policy, batch, episodes, config),
    )  # fmt: skip


def prepared(**sections):
    """Return the train state, the sampled episodes, and their batch and signals."""
    config = config_of(rollout={"groups": 3, "temperature": 1.5}, **sections)
    episodes = sample("frozen_lake", probes=Probes(gold=True))
    batch = batch_of(episodes)
    train_state = make_train_state(load(config), config)
    signals = score_batch(train_state, batch, temperature=1.5, parts=parts_of(batch, 4))
    return config, train_state, episodes, batch, signals


def test_the_filters_scale_and_the_corrections_weights_are_in_the_credit():
    section = {"kind": "tis", "cap": 1.05}
    config, _, episodes, batch, signals = prepared(rollout_correction=section)
    apart = torch.linspace(-0.5, 0.5, signals.old_logp_NT.numel()).view_as(signals.old_logp_NT)
    mask = batch.action_mask_NT
    signals = signals_of(batch, old_logp=(signals.old_logp_NT + apart).where(mask, 0))
    whole = assigned(config, episodes, batch, signals)
    half = assigned(config, episodes, batch, signals, scale=0.5)
    assert torch.equal(half.credit.advantages_NT, 0.5 * whole.credit.advantages_NT)
    want = rollout_weights(
        signals.old_logp_NT, batch.rollout_logprobs_NT, mask, kind="tis", cap=1.05
    )
    assert torch.equal(whole.credit.weights_NT, want)
    assert want.max() == pytest.approx(1.05)
    assert want[mask].min() < 0.7


def test_weights_of_zero_take_a_token_out_of_the_loss():
    config, train_state, episodes, batch, signals = prepared()
    credit = assigned(config, episodes, batch, signals).credit
    before = [parameter.clone() for parameter in train_state.policy.model.parameters()]
    zeros = torch.zeros_like(credit.advantages_NT)
    data = MiniBatch(batch, signals, Credit(credit.advantages_NT, weights_NT=zeros))
    metrics = update(train_state, data, config, step=1, kl_coef=0.0)
    assert metrics["actor/grad_norm"] == 0
    decay = 1 - config.optim.lr * config.optim.weight_decay
    after = train_state.policy.model.parameters()
    n_steps = int(metrics["budget/optimizer_steps"])
    for old, new in zip(before, after, strict=True):
        torch.testing.assert_close(new, old * decay**n_steps)


def test_turn_clip_beta_changes_the_update_and_its_scale_stays_inside():
    loss = {"kind": "turn", "clip_low": 3e-3, "clip_high": 4e-3}
    sections = {"attribution": {"kind": "info_gain"}, "optim": {"mini_batch_size": 12}}
    norms, middle = {}, None
    for beta in (0.3, 0.0):
        turn_clip = {**loss, "turn_clip_beta": beta}
        config, train_state, episodes, batch, signals = prepared(loss=turn_clip, **sections)
        found = assigned(config, episodes, batch, signals)
        mask = batch.action_mask_NT
        scale = found.credit.clip_scale_NT[mask]
        assert bool((scale == 1).all()) == (beta == 0)
        # Ratios between the bounds with and without the scale, on the side that is clipped.
        sign = found.credit.advantages_NT.sign()
        middle = (1 + found.credit.clip_scale_NT) / 2 if middle is None else middle
        moved = middle * torch.where(sign > 0, 4e-3, -3e-3)
        signals = signals_of(batch, old_logp=(signals.old_logp_NT - moved).where(mask, 0))
        data = MiniBatch(batch, signals, found.credit)
        norms[beta] = update(train_state, data, config, step=1, kl_coef=0.0)["actor/grad_norm"]
        assert 1 - beta <= scale.min() <= scale.max() <= 1 + beta
        named = {k: v for k, v in found.metrics.items() if "clip_scale" in k and "std" not in k}
        assert named
        assert all(1 - beta - 1e-6 <= value <= 1 + beta + 1e-6 for value in named.values())
    assert norms[0.0] > 0
    assert norms[0.3] != pytest.approx(norms[0.0], rel=1e-3)
