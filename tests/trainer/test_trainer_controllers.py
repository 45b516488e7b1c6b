"""What adapts from step to step: by hand, in a trial, and the same after a kill (F1)."""

import math
from dataclasses import replace
from functools import cache

import pytest
from credit_cases import config_of, lasting, make_trial
from killing import Killed

from rltune.advantages.sepa import SepaState
from rltune.losses.kl import AdaptiveKl
from rltune.policy.load import weights_digest
from rltune.spec.schema.advantage import SepaConfig
from rltune.spec.schema.loss import PpoLoss
from rltune.trainer.checkpoint import load_checkpoint
from rltune.trainer.controllers import (
    FIRST_STEPS,
    Controllers,
    Spread,
    kl_after,
    kl_coef,
    sepa_after,
    sepa_strength,
    spread_after,
)
from rltune.trainer.train_state import make_train_state
from rltune.trainer.update_step import without_batch

KL = PpoLoss(use_kl_loss=True, kl_loss_coef=0.1, kl_type="k3", kl_target=0.02, kl_horizon=100.0)


def test_the_adaptive_coefficient_by_hand():
    state, coefs = Controllers(), []
    for kl in (0.021, 1.0, 0.0, None):
        state = replace(state, kl=kl_after(state, kl, config=KL, rollouts=10))
        coefs.append(kl_coef(state, KL))
    # errors .05, then +.2 and -.2 at the limits, each times 10 / 100; a step without KL moves none
    want = [0.1 * 1.005, 0.1 * 1.005 * 1.02, 0.1 * 1.005 * 1.02 * 0.98]
    assert coefs == pytest.approx([*want, want[-1]], rel=1e-12)
    assert kl_coef(Controllers(), KL) == 0.1


def test_a_fixed_coefficient_has_no_state():
    fixed = KL.model_copy(update={"kl_target": None})
    assert kl_after(Controllers(), 3.0, config=fixed, rollouts=10) is None
    assert kl_coef(Controllers(kl=AdaptiveKl(0.7)), KL) == 0.7


def spreads(stds, share=0.5):
    state, low = Spread(), []
    for std in stds:
        state = spread_after(state, std, share=share)
        low.append(state.n_low)
    return state, low


def test_the_spread_by_hand():
    # The mean of the first ten is 1: from then on below .5 is low, one after the other.
    state, low = spreads([2.0, 0.0] * 5 + [0.49, 0.5, 0.4, 0.4, 0.6, 0.1])
    assert low == [0] * FIRST_STEPS + [1, 0, 1, 2, 0, 1]
    assert (state.first_total, state.n_first) == (10.0, 10)
    assert spreads([1.0] * 12 + [0.0], share=None)[0] == Spread()
    assert spreads([0.0] * 20)[1] == [0] * 20  # there was no spread to lose


def test_steps_without_any_spread_are_counted_from_the_start():
    state, _ = spreads([0.0, 1e-17, 0.0])
    assert (state.n_flat, state.n_first) == (3, 3)
    state, _ = spreads([0.0, 0.0, 0.5, 0.0])
    assert state.n_flat == 0
    assert state == Spread(first_total=0.5, n_first=4)
    assert spreads([0.0] * 12)[0] == Spread(n_first=12)
    # A start of nothing but zeros is no measure: it begins anew with the first spread.
    state, low = spreads([0.0] * 12 + [1.0] * 10 + [0.4, 0.4])
    assert state == Spread(first_total=10.0, n_first=10, n_low=2)
    assert low[-3:] == [0, 1, 2]


def sepa(state, config, *, variance=1.0, success=0.0, n_steps=1):
    return sepa_after(state, config, variance=variance, success_rate=success, n_steps=n_steps)


def test_sepa_counts_optimiser_steps():
    config, found = SepaConfig(schedule="linear", delay=2, steps=8), []
    state = SepaState()
    for n_steps in (2, 2, 0, 4, 4):
        found.append(sepa_strength(state, config))
        state = sepa(state, config, n_steps=n_steps)
    # after 0, 2, 4, 4 and 8 optimiser steps
    assert found == pytest.approx([0, 0, 2 / 8, 2 / 8, 6 / 8])
    assert sepa_strength(state, config) == 1
    assert sepa(SepaState(), SepaConfig()) == SepaState()  # it is off


def test_the_gate_opens_once_and_stays_open():
    config = SepaConfig(schedule="linear", delay=0, steps=4, gate=0.5)
    state, found = SepaState(), []
    for success in (0.4, math.nan, 0.5, 0.0):
        state = sepa(state, config, success=success)
        found.append(sepa_strength(state, config))
    assert found == [0, 0, 0.75, 1]


def test_auto_follows_the_golden_through_the_config():
    config = SepaConfig(
        schedule="auto", delay=100, steps=100, ema_decay=0.5, warmup=3, var_threshold=0.2
    )
    state, found = SepaState(), []
    for variance in (1, 1, 1, 0.4, 0.1, 0, 0, 0):
        state = sepa(state, config, variance=variance)
        found.append(sepa_strength(state, config))
    assert found == pytest.approx([0, 0, 0, 0, 0, 0, 0.5, 0.75])  # MATHS 5


# ---- in a trial

STEPS = {"budget": {"steps": 4}, "checkpoint": {"every": 2}, "gate": {"every": 4, "tasks": 2}}
SHAPING = {
    "gtpo_beta": 0.2,
    "hicra_alpha": 0.3,
    "grams": ["Left", "Up"],
    "sepa": {"schedule": "auto", "delay": 1, "steps": 20, "warmup": 4, "ema_decay": 0.5},
}
ADAPTING = {
    "loss": {
        "use_kl_loss": True, "kl_loss_coef": 0.1, "kl_type": "k3", "kl_target": 0.01,
        "kl_horizon": 50.0,
    },
    "early_stop": {"reward_std_share": 0.1},
    "collapse": {"every": 2, "prompts": 2},
}  # fmt: skip
ADCA = {
    "advantage": {"kind": "grpo", "shaping": {**SHAPING, "signal": "entropy"}},
    "attribution": {
        "kind": "adca", "judge": "solver", "alpha": 0.5, "alpha_schedule": "cosine",
        "alpha_steps": 3,
    },
    **ADAPTING,
}  # fmt: skip
TURNS = {
    "advantage": {"kind": "grpo", "ddof": 0, "shaping": {**SHAPING, "grams": ["<search>"]}},
    "attribution": {"kind": "info_gain"},
    "rollout_correction": {"kind": "tis"},
    **ADAPTING,
    "loss": {**ADAPTING["loss"], "kind": "turn", "turn_clip_beta": 0.3},
}
ALL = {"adca": ("frozen_lake", ADCA), "info_gain": ("multihop_qa", TURNS)}
EACH = pytest.mark.parametrize("name", [pytest.param("adca", marks=pytest.mark.slow), "info_gain"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the uninterrupted trial of a name and its result, run once."""

    @cache
    def run(name):
        kind, sections = ALL[name]
        trial = make_trial(tmp_path_factory.mktemp(name), kind, **STEPS, **sections)
        return trial, trial.run()

    return run


@EACH
def test_killed_and_resumed_with_all_that_adapts_is_bit_equal(tmp_path, whole, name):
    (want, want_result), (kind, sections) = whole(name), ALL[name]
    trial = make_trial(tmp_path / "t", kind, **STEPS, **sections)
    with pytest.raises(Killed):
        trial.run(die_at=3)  # one step after a checkpoint
    result = trial.run()
    assert result.metrics_sha256 == want_result.metrics_sha256
    assert result.receipts == want_result.receipts
    assert [lasting(row) for row in trial.rows] == [lasting(row) for row in want.rows]
    assert weights_digest(trial.policy.model) == weights_digest(want.policy.model)
    assert progress(trial).controllers == progress(want).controllers


def progress(trial):
    train_state = make_train_state(trial.policy, trial.config)
    return load_checkpoint(trial.folder.latest, train_state, config_hash="e" * 64)


@EACH
def test_all_that_adapts_did(whole, name):
    """Else the test above could not fail."""
    trial, result = whole(name)
    rows = trial.rows[1:]
    assert len({row["actor/kl_coef"] for row in rows}) > 1
    # 2 optimiser steps a training step: min(max(n - 1, 0) / 20, 1), or more by the variance
    linear = [max(2 * k - 1, 0) / 20 for k in range(4)]
    lams = [row["sepa/lambda"] for row in rows]
    assert all(lam >= floor - 1e-12 for lam, floor in zip(lams, linear, strict=True))
    assert lams[:2] == pytest.approx(linear[:2])
    state = progress(trial).controllers
    assert state.sepa.n_steps == 8
    assert state.sepa.reference is not None
    assert state.spread.n_first == 4
    assert state.spread.first_total == pytest.approx(
        sum(row["rollout/in_group_reward_std"] for row in rows)
    )
    assert state.kl.coef != rows[-1]["actor/kl_coef"]
    assert [row["step"] for row in rows if "collapse/mutual_information" in row] == [1, 3]
    if name == "info_gain":
        assert result.receipts["ig/mean"] != 0
        return
    alphas = [row["adca/alpha"] for row in rows]
    assert alphas == pytest.approx([0.25 * (1 + math.cos(math.pi * k / 3)) for k in range(4)])
    # The cosine has ended at 0 in the last step.
    assert [row["adca/asked_count"] for row in rows] == [8, 8, 8, 0]


@pytest.mark.parametrize("on_drop", [pytest.param("drop", marks=pytest.mark.slow), "mask"])
def test_steps_that_keep_nothing_leave_kl_and_sepa_alone(tmp_path, on_drop):
    """The spread of their rewards, which is why they kept nothing, is seen all the same."""
    constant = {"terms": [{"score": "credit_cases:nothing"}], "threshold": 1.0}
    trial = make_trial(
        tmp_path / "t",
        reward=constant,
        rollout_filter={"include_zero": False, "on_drop": on_drop, "empty_stop_steps": 9},
        **{**ADCA, **STEPS, "budget": {"steps": 2}},
    )
    trial.run()
    state = progress(trial).controllers
    assert [row["rollout/empty_after_filter"] for row in trial.rows[1:]] == [1, 1]
    assert (state.sepa.ema, state.sepa.reference) == (None, None)
    assert state.sepa.n_steps == (4 if on_drop == "mask" else 0)
    assert state.kl is None
    assert state.spread == Spread(0.0, 2, 0)


def test_a_step_that_keeps_nothing_shows_sepa_its_success():
    """Only the gate looks at it: nothing was observed and no optimiser step was made."""
    sepa = {"schedule": "linear", "steps": 4, "gate": 0.5}
    shaping = {"gtpo_beta": 0.1, "sepa": sepa, "grams": ["Up"]}
    config = config_of(advantage={"kind": "grpo", "shaping": shaping})
    before = Controllers(sepa=SepaState(ema=0.3, n_steps=7, n_observed=6))
    for rate, is_open in ((math.nan, False), (0.49, False), (0.5, True)):
        seen = {"rollout/success_rate": rate, "rollout/in_group_reward_std": 0.0}
        after = without_batch(before, seen, config)
        assert after.sepa == replace(before.sepa, is_gate_open=is_open)
