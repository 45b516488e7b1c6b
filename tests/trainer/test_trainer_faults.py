"""Faults: an episode that something outside the policy spoiled teaches nothing, counts nowhere."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from credit_cases import parts_of
from rollout_filters import filter_of

from rltune.errors import FaultsError, TrialError
from rltune.gate import GateResult, choose_best, fault_warnings
from rltune.losses.reduce import AGGREGATIONS
from rltune.rollout.tokens import to_batch
from rltune.spec.schema.advantage import GaeConfig, GrpoConfig
from rltune.store.jsonl import read_jsonl
from rltune.trainer.controllers import Controllers, Spread
from rltune.trainer.credit.estimate import estimate
from rltune.trainer.filtering import apply_filter, filter_groups
from rltune.trainer.objective import MiniBatch, update
from rltune.trainer.records.measures import gate_line, rollout_metrics
from rltune.trainer.records.outcomes import fault_line, outcome_metrics
from rltune.trainer.train_state import make_train_state, score_batch
from rltune.trainer.update_step import without_batch
from rltune.types import Episode, StopReason, Turn
from rltune_envs.errors import EnvError

OFF = filter_of()


def episode(index, *, reward=0.0, success=False, fault="", failure="wrong", auxiliary=None):
    turn = Turn((1,), (4, 3), (0.0, 0.0), StopReason.STOP, "", "", (), reward, True, 0, 0, fault)
    return Episode(
        "t", 0, index // 4, index % 4, (turn,), True, False, success, reward, failure,
        auxiliary or {},
    )  # fmt: skip


def make_step(train_state, data, config):
    return update(train_state, data, config, step=1, kl_coef=config.loss.kl_loss_coef)


def without(batch, row):
    return batch.rows(torch.tensor([i for i in range(len(batch)) if i != row]))


@pytest.fixture
def sampled(small_policy, make_config, sample_batch):
    """Return a sampled batch of two groups of four with a fault in one row, and its config."""

    def sample(row, **changes):
        config = make_config(optim__mini_batch_size=8, optim__grad_clip=1e9, **changes)
        episodes, whole = sample_batch(config, small_policy())
        turns = episodes[row].turns
        broken = replace(episodes[row], turns=(replace(turns[0], fault="x: y"), *turns[1:]))
        episodes[row] = replace(broken, reward=1e6)  # whatever it says, nobody may hear it
        assert len(set(whole.rewards_N.tolist())) > 1
        return to_batch(episodes, pad_id=small_policy().pad_id), config

    return sample


@pytest.mark.parametrize(
    "config",
    [GrpoConfig(kind="grpo"), GrpoConfig(kind="grpo", normalize_std=False), GaeConfig()],
    ids=["grpo", "dr-grpo", "gae"],
)
@pytest.mark.parametrize("row", [0, 2, 7])
def test_the_others_have_the_advantages_that_they_would_have_without_it(
    small_policy, sampled, config, row
):
    batch, trial = sampled(row, advantage=config.model_dump())
    train_state = make_train_state(small_policy(), trial)

    def advantages(batch):
        signals = score_batch(train_state, batch, temperature=1.0, parts=parts_of(batch, 8))
        return estimate(batch, signals, config).advantages_NT

    with_fault, clean = advantages(batch), advantages(without(batch, row))
    assert (with_fault[row] == 0).all()
    others = [i for i in range(8) if i != row]
    width = clean.shape[1]
    torch.testing.assert_close(with_fault[others][:, :width], clean, rtol=0, atol=0)
    assert (with_fault[others][:, width:] == 0).all()
    assert (clean != 0).any()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_the_gradient_is_the_one_without_it(small_policy, sampled, aggregation):
    batch, config = sampled(
        1, loss__aggregation=aggregation, loss__entropy_coeff=0.01, advantage={"kind": "gae"}
    )

    def gradients(batch):
        train_state = make_train_state(small_policy(dtype="float64"), config)
        signals = score_batch(train_state, batch, temperature=1.0, parts=parts_of(batch, 8))
        credit = estimate(batch, signals, config.advantage)
        metrics = update(
            train_state,
            MiniBatch(batch, signals, credit),
            config,
            step=1,
            kl_coef=config.loss.kl_loss_coef,
        )
        assert metrics["budget/optimizer_steps"] == 1
        assert metrics["actor/grad_norm"] > 0
        modules = (train_state.policy.model, train_state.critic)
        return [p.grad for module in modules for p in module.parameters()]

    for got, want in zip(gradients(batch), gradients(without(batch, 1)), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)


def test_scores_and_selection_are_over_what_is_valid():
    # group 0: [1, 3] of four; group 1: nothing; group 2: [5] alone; group 3: [0, 0, 0, 2]
    rewards = [1, 9, 3, 9, 9, 9, 9, 9, 5, 9, 9, 9, 0, 0, 0, 2.0]
    is_valid = np.array([1, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1], dtype=bool)
    faults = ["" if ok else "a: b" for ok in is_valid]
    played = [episode(i, reward=rewards[i], fault=faults[i]) for i in range(16)]
    batch = to_batch(played, pad_id=0)
    chosen = filter_groups(batch, groups=4, config=OFF)
    # std of [1, 3] = sqrt(2); of [0, 0, 0, 2]: mean 0.5, sqrt((3 x 0.25 + 2.25) / 3) = 1
    assert chosen.scores_G.tolist() == pytest.approx([2**0.5, 0, 0, 1])
    assert (chosen.keep_N == is_valid).all()
    assert not chosen.drop_N.any()
    assert (chosen.kept_ratio, chosen.zero_count) == (1.0, 1)  # group 1 is no candidate
    fewest = filter_of(strategy="top_k_abs", value=1.0, type="smallest")
    chosen = filter_groups(batch, groups=4, config=fewest)
    assert np.flatnonzero(chosen.keep_N).tolist() == [8]  # group 2, not the empty group 1
    assert np.flatnonzero(chosen.drop_N).tolist() == [0, 1, 2, 3, 12, 13, 14, 15]
    assert chosen.kept_ratio == pytest.approx(1 / 3)


def test_rows_with_a_fault_stay_in_the_batch():
    """The number of rows, and so of optimiser steps, does not tell whether a service was down."""
    faults = ["", "a: b", "", "", "a: b", "a: b", "a: b", "a: b"]
    episodes = [episode(i, reward=float(i), fault=fault) for i, fault in enumerate(faults)]
    batch = to_batch(episodes, pad_id=0)
    assert batch.is_trained_N.tolist() == [fault == "" for fault in faults]
    assert batch.rewards_NT.sum(axis=1).tolist() == [0, 0, 2, 3, 0, 0, 0, 0]
    for on_drop in ("drop", "mask"):
        chosen = filter_groups(batch, groups=2, config=OFF)
        kept = apply_filter(batch, chosen, on_drop=on_drop)
        assert len(kept) == 8
        assert kept.is_valid_N.tolist() == batch.is_valid_N.tolist()


def test_a_filter_that_keeps_nothing_is_not_a_step_of_faults():
    zero = filter_of(include_zero=False)

    def chosen(fault):
        played = [episode(i, reward=1.0, fault=fault) for i in range(4)]
        return filter_groups(to_batch(played, pad_id=0), groups=2, config=zero)

    assert chosen("").is_empty
    faults = chosen("a: b")
    assert not faults.is_empty
    assert (faults.kept_ratio, faults.scale, faults.keep_N.any()) == (1.0, 1.0, False)


@pytest.mark.parametrize("kind", ["grpo", "gae"])
@pytest.mark.parametrize("on_drop", ["drop", "mask"])
def test_steps_whose_every_rollout_has_a_fault_train_nothing(make_trial, kind, on_drop):
    trial = make_trial(
        is_faulty=lambda seed: seed < 100,  # the training tasks
        advantage={"kind": kind},
        rollout_filter={"value": 0.9, "include_zero": False, "on_drop": on_drop},
        budget__steps=2,
    )
    result = trial.run()
    assert result.final_step == 2
    assert result.budget["optimizer_steps"] == 2 * 2  # as in a healthy trial
    for row in trial.rows[1:]:
        assert row["rollout/fault_count"] == 8
        assert math.isnan(row["rollout/success_rate"])
        assert row["actor/grad_norm"] == 0
        assert row["rollout/empty_after_filter"] == 0
    assert trial.warnings[:2] == [
        "step 1: 8 of 8 episodes had a fault, are not trained on and are in no rate: "
        "retriever (8); the first: retriever: it is down",
        "step 1: 8 of 8 episodes had a fault, more than 25%: the step trains on nothing",
    ]
    rows = read_jsonl(trial.folder.episodes).rows
    assert {(row["kept"], row["failure_class"]) for row in rows} == {(False, "fault")}
    assert {row["fault"] for row in rows} == {"retriever: it is down"}


def test_some_faults_leave_the_number_of_steps_alone(make_trial):
    counter = itertools.count()
    trial = make_trial(is_faulty=lambda seed: next(counter) % 5 == 0)
    result = trial.run()
    assert result.budget["optimizer_steps"] == 4 * 2
    assert all(0 < row["rollout/fault_count"] < 8 for row in trial.rows[1:])
    rows = read_jsonl(trial.folder.episodes).rows
    assert all(row["kept"] is (row["fault"] == "") for row in rows)
    for step in range(1, 5):
        won = [row["success"] for row in rows if row["step"] == step and not row["fault"]]
        logged = trial.rows[step]["rollout/success_rate"]
        assert logged == pytest.approx(sum(won) / len(won))


def test_the_gate_leaves_faults_out_and_says_so(make_trial):
    trial = make_trial(is_faulty=lambda seed: seed in (101, 103), budget__steps=2)
    trial.run(metric="heldout/success_rate")
    assert trial.warnings[0].startswith("gate at step 0: 2 of 5 episodes had a fault")
    assert all(" of 3 tasks" in line for line in trial.lines[1:])
    for row in read_jsonl(trial.folder.heldout).rows:
        assert [bool(fault) for fault in row["fault"]] == [False, True, False, True, False]
        assert (row["scored"], row["n"]) == (3, 5)
        counted = [0, 2, 4]
        logged = next(r for r in trial.rows if r["step"] == row["step"])
        mean = sum(row["reward"][i] for i in counted) / 3
        assert logged["heldout/reward_mean"] == pytest.approx(mean)
        assert logged["heldout/success_rate"] == sum(row["success"][i] for i in counted) / 3
        assert logged["heldout/fault_count"] == 2


def lossy(n):
    """Return what spoils the first n of the five held-out tasks from the second gate on."""
    counter = itertools.count()
    return lambda seed: seed >= 100 and next(counter) >= 5 and seed < 100 + n


@pytest.mark.parametrize(("n", "is_lost"), [(1, False), (2, True)])  # of 5; 1 is 20 %, 2 are 40 %
def test_a_gate_that_lost_too_many_tasks_is_not_chosen(make_trial, monkeypatch, n, is_lost):
    trial = make_trial(is_faulty=lossy(n), optim__lr=1e-12, gate__every=2)
    monkeypatch.setattr("rltune.trainer.loop.choose_best", spy := Spy(choose_best))
    result = trial.run(mode="max")
    gates = spy.seen
    assert [(gate.n, gate.lost, gate.asked) for gate in gates] == [(5, 0, 5), *[(5 - n, n, 5)] * 2]
    assert [gate.is_lost for gate in gates] == [False, is_lost, is_lost]
    assert math.isnan(result.final_metric) is is_lost
    if not is_lost:
        assert result.warnings == ()
        return
    assert result.best_step == 0
    said = (
        "faults took more than 25% of the held-out tasks, leaving 3 of 5 at step 2, 3 of 5 at "
        "step 4; such a gate is never chosen or compared"
    )
    assert result.warnings == (said,)
    assert trial.folder.read_done() == result or math.isnan(result.final_metric)
    card = trial.folder.model_card.with_suffix(".md").read_text()
    assert f"**Warning**, {said}." in card
    assert "| 3 of 5 |" in card
    assert "lost to faults |" in card
    assert said in trial.warnings
    assert "(3 of 5 scored, 2 had a fault)" in trial.lines[-1]


class Spy:
    """Calls a function on gates, and keeps the gates of the last call."""

    def __init__(self, function):
        self.function = function

    def __call__(self, gates, **options):
        self.seen = gates
        return self.function(gates, **options)


def test_where_every_gate_is_lost_one_is_chosen_and_proves_nothing():
    gates = [GateResult(0, 0.5, 2, 1, lost=2), GateResult(2, 1.0, 2, 2, lost=2)]
    assert choose_best(gates, mode="max").step == 2
    (said,) = fault_warnings(gates, mode="max")
    assert said.endswith("this holds for every gate, so the chosen checkpoint has no result")


def test_a_trial_without_a_whole_gate_has_no_result(make_trial):
    trial = make_trial(is_faulty=lambda seed: seed in (100, 101), budget__steps=2)
    result = trial.run()
    assert all(map(math.isnan, (result.base_metric, result.heldout_metric, result.final_metric)))
    assert trial.folder.best_heldout.exists()
    assert result.warnings[0].endswith(
        "this holds for every gate, so the chosen checkpoint has no result"
    )


def test_a_lost_step_trains_on_nothing_and_is_in_no_mean(make_trial):
    """Three of eight episodes of step 2; a verifier may fail on wrong answers alone."""
    counter = itertools.count()
    trial = make_trial(is_faulty=lambda seed: seed < 100 and 8 <= next(counter) < 11)
    result = trial.run()
    assert result.final_step == 4
    row = trial.rows[2]
    assert (row["rollout/fault_count"], row["actor/grad_norm"]) == (3, 0)
    assert math.isnan(row["rollout/success_rate"])
    assert all(r["actor/grad_norm"] > 0 for r in trial.rows[1:] if r["step"] != 2)
    rows = [r for r in read_jsonl(trial.folder.episodes).rows if r["step"] == 2]
    assert [bool(r["fault"]) for r in rows] == [True] * 3 + [False] * 5
    assert not any(r["kept"] for r in rows)


def test_three_lost_steps_in_a_row_end_a_trial_by_name(make_trial):
    counter = itertools.count()
    trial = make_trial(
        is_faulty=lambda seed: seed < 100 and next(counter) // 8 in (0, 1, 3, 4, 5),
        budget__steps=8,
    )
    with pytest.raises(FaultsError) as caught:
        trial.run()
    assert str(caught.value) == (
        "too_many_faults: more than 25% of the episodes of 3 steps in a row had a fault (step 4: "
        "8 of 8, step 5: 8 of 8, step 6: 8 of 8); the last: retriever: it is down. Repair it; the "
        "same command goes on from the last checkpoint"
    )
    assert trial.checkpoints[-1] == 4
    trial.is_faulty = lambda seed: False
    assert trial.run().final_step == 8


def test_a_first_gate_of_faults_ends_the_trial_with_a_reason(make_trial):
    trial = make_trial(is_faulty=lambda seed: seed >= 100)
    with pytest.raises(TrialError, match=r"^the first gate: 5 of 5 episodes had a fault.*repair"):
        trial.run()


def test_outcomes_by_hand():
    episodes = [
        episode(0, reward=1.0, success=True, failure="none", auxiliary={"em": 1.0}),
        episode(1, reward=-0.5, auxiliary={"em": 0.0}),
        episode(2, failure="unfinished"),  # cut by the context: no measures
        episode(3, reward=7.0, success=True, fault="bm25: gone", auxiliary={"em": 1.0}),
    ]
    assert outcome_metrics(episodes, prefix="heldout", auxiliary_names=("em",)) == {
        "heldout/success_rate": pytest.approx(1 / 3),
        "heldout/reward_mean": pytest.approx(0.5 / 3),
        "heldout/turns": 1.0,
        "heldout/invalid_action_rate": 0.0,
        "heldout/fault_count": 1.0,
        "heldout/em": pytest.approx(1 / 3),
    }
    chosen = filter_groups(to_batch(episodes, pad_id=0), groups=1, config=OFF)
    found = rollout_metrics(episodes, chosen, groups=1, auxiliary_names=("em",))
    # std of [1, -0.5, 0]: mean 1/6, ((5/6)^2 + (4/6)^2 + (1/6)^2) / 2 = 42 / 72
    assert found["rollout/in_group_reward_std"] == pytest.approx((42 / 72) ** 0.5)
    assert found["rollout/em"] == pytest.approx(1 / 3)


def in_group_std(rewards):
    """Return the metric for two groups of two; None is a fault."""
    episodes = [
        replace(episode(i, reward=r or 0.0, fault="a: b" if r is None else ""), group=i // 2)
        for i, r in enumerate(rewards)
    ]
    chosen = filter_groups(to_batch(episodes, pad_id=0), groups=2, config=OFF)
    found = rollout_metrics(episodes, chosen, groups=2, auxiliary_names=())
    return found["rollout/in_group_reward_std"]


def test_a_group_that_faults_left_alone_has_no_spread():
    """It is not 0: that would end a trial for lost spread because a service is down."""
    # std of [0, 2] is sqrt(2), that of equal rewards 0
    assert in_group_std([0.0, 2.0, 1.0, 1.0]) == pytest.approx(2**0.5 / 2)
    assert in_group_std([0.0, 2.0, 1.0, None]) == pytest.approx(2**0.5)
    assert math.isnan(in_group_std([None, 2.0, 1.0, None]))


def test_such_a_step_is_left_out_of_the_spread(make_config):
    config = make_config(early_stop={"reward_std_share": 0.1, "reward_std_steps": 2})
    before = Controllers(spread=Spread(10.0, 10, 1))
    seen = {"rollout/success_rate": 0.5, "rollout/in_group_reward_std": math.nan}
    assert without_batch(before, seen, config) == before
    low = without_batch(before, seen | {"rollout/in_group_reward_std": 0.05}, config)
    assert low.spread.n_low == 2


def test_the_success_of_the_pool_is_over_the_steps_that_have_one(make_trial):
    """The service is down in the last steps; the first ones have a rate."""
    counter = itertools.count()
    # 8 episodes a step are reset once each, and so are the gate's
    trial = make_trial(is_faulty=lambda seed: seed < 100 and next(counter) >= 16)
    result = trial.run()
    rates = [row["rollout/success_rate"] for row in trial.rows[1:]]
    assert [math.isnan(rate) for rate in rates] == [False, False, True, True]
    assert result.pool_metric == pytest.approx(sum(rates[:2]) / 2)


def test_a_reward_that_is_not_finite_names_its_task(make_trial, up_env, monkeypatch):
    step = up_env.step

    def broken(self, response):
        made = step(self, response)
        return replace(made, reward=math.nan) if self._seed == 2 and self._turn == 1 else made

    monkeypatch.setattr(up_env, "step", broken)
    said = r"^the environment gave task 'up-\d*2' \(seed \d*2\) the reward nan in turn 0; "
    with pytest.raises(EnvError, match=said):
        make_trial().run()


def test_faults_are_named_by_kind():
    faults = ["", "verifier f: it raised", "retriever: slow", "verifier f: again"]
    episodes = [episode(i, fault=fault) for i, fault in enumerate(faults)]
    assert fault_line(episodes, where="step 2") == (
        "step 2: 3 of 4 episodes had a fault, are not trained on and are in no rate: "
        "verifier f (2), retriever (1); the first: verifier f: it raised"
    )
    assert fault_line(episodes[:1], where="step 2") == ""


def test_a_success_rate_is_logged_with_its_tasks_and_interval():
    """Case E3. Wilson for 16 of 125: centre 0.1391, half 0.0586."""
    metrics = {"heldout/success_rate": 0.128, "heldout/turns": 3.0}
    gate = GateResult(step=10, metric=0.128, n=125, successes=16)
    said = gate_line(metrics, gate, name="heldout/success_rate")
    assert said == "step 10: heldout/success_rate 0.128 [0.0803, 0.198] of 125 tasks"
    assert gate_line(metrics, gate, name="heldout/turns") == "step 10: heldout/turns 3"
