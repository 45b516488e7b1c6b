"""The card of a trial, and its wall limits."""

import json
from dataclasses import replace

import pytest

from rltune.errors import EvalOverrunError, TrainOverrunError
from rltune.gate import GateResult, wilson_interval
from rltune.policy.load import weights_digest
from rltune.store.files import read_json
from rltune.store.origin import Origin, write_origin
from rltune.store.prices import Price
from rltune.store.service_usage import ServiceUsage
from rltune.trainer import loop
from rltune.trainer.checkpoint import Progress
from rltune.trainer.ending import overrun, overspent
from rltune.trainer.records.model_card import pool_counts
from rltune.trainer.start import checkpoint_digest


@pytest.fixture(scope="module")
def gated(tmp_path_factory, make_trial_in):
    """Return a trial with a gate at each step, and its result."""
    trial = make_trial_in(tmp_path_factory.mktemp("gated"), gate__every=1)
    return trial, trial.run()


def test_the_card_proves_what_was_shipped(gated):
    trial, result = gated
    card = read_json(trial.folder.model_card)
    assert card["selected_on"] == "heldout"
    assert card["metric"] == {"name": "heldout/reward_mean", "mode": "max"}
    assert [gate["step"] for gate in card["gates"]] == [0, 1, 2, 3, 4]  # step 0 is a candidate
    chosen = card["chosen"]
    best = max(gate["metric"] for gate in card["gates"])
    assert (chosen["step"], chosen["metric"]) == (result.best_step, best)
    first = card["gates"][0]
    assert first["interval"] == list(wilson_interval(first["successes"], first["n"]))
    folder = trial.folder.checkpoint(result.best_step)
    assert card["checkpoint"]["path"] == f"checkpoints/{folder.name}"
    assert card["checkpoint"]["weights_sha256"] == checkpoint_digest(folder)
    assert card["start"]["weights_sha256"] == trial.policy.weights_sha256
    assert card["metrics_sha256"] == result.metrics_sha256
    assert [row["step"] for row in card["pool"]] == [1, 2, 3, 4]
    assert all(row["n"] == 8 for row in card["pool"])
    assert card["warnings"] == []


def test_the_digest_of_a_checkpoint_is_that_of_its_policy(plain):
    trial, _ = plain
    last = trial.folder.latest.resolve()
    assert checkpoint_digest(last) == weights_digest(trial.policy.model)


def test_the_card_for_people_marks_the_shipped_step(gated):
    trial, result = gated
    step = result.best_step
    text = trial.folder.model_card.with_suffix(".md").read_text()
    assert f"Shipped: **step {step}**" in text
    (row,) = [line for line in text.splitlines() if line.endswith("| shipped |")]
    assert row.startswith(f"| {step} |")
    assert f"weights {checkpoint_digest(trial.folder.checkpoint(step))}" in text


def test_equals_are_ties_and_the_earliest_is_shipped(make_trial):
    trial = make_trial(gate__every=1, optim__lr=1e-12)  # nothing is learned
    trial.run()
    chosen = read_json(trial.folder.model_card)["chosen"]
    assert (chosen["step"], chosen["ties"]) == (0, [1, 2, 3, 4])
    assert chosen["why"].endswith("of equals the earliest; training did not beat the start")


def test_an_inversion_is_told_in_the_card_and_the_log(make_trial, monkeypatch):
    """Held-out 60 -> 30 of 100 while training rises: as `find_inversion` is given them."""
    gates = (GateResult(0, 0.6, 100, 60), GateResult(4, 0.3, 100, 30))
    pool = [(1, 20, 100), (2, 20, 100), (3, 60, 100), (4, 60, 100)]
    monkeypatch.setattr("rltune.trainer.records.model_card.pool_counts", lambda rows: pool)
    real_write = loop.write_card
    monkeypatch.setattr(
        loop, "write_card", lambda job, found, _, tasks: real_write(job, found, gates, tasks)
    )
    trial = make_trial()
    trial.run()
    card = read_json(trial.folder.model_card)
    assert card["inversion"]["heldout"] == [0.6, 0.3]
    (warning,) = card["warnings"]
    assert warning.startswith("inversion: training success rose 0.200 -> 0.600 [+0.")
    assert "while held-out success fell 0.600 -> 0.300 [-0." in warning
    assert trial.warnings == [warning]
    assert f"**Warning**, {warning}." in trial.folder.model_card.with_suffix(".md").read_text()


def test_pool_counts_leave_faults_out():
    rows = [
        {"step": 0, "heldout/success_rate": 0.5},
        {"step": 1, "rollout/success_rate": 0.5, "budget/rollouts": 8.0},
        {"step": 2, "rollout/success_rate": 0.5, "budget/rollouts": 16.0, "rollout/fault_count": 2},
    ]
    assert pool_counts(rows) == [(1, 4, 8), (2, 3, 6)]


def test_a_wall_is_exceeded_only_beyond_it(make_config):
    config = make_config(budget__train_wall_s=5.0, budget__eval_wall_s=2.0)
    assert overrun(Progress(step=2, train_s=5.0), config, eval_s=2.0) is None
    error = overrun(Progress(step=2, train_s=5.1), config, eval_s=9.0)
    assert isinstance(error, TrainOverrunError)
    assert str(error).startswith(
        "training took 5.1 s, more than budget.train_wall_s (5), at step 2"
    )
    assert isinstance(overrun(Progress(step=2), config, eval_s=2.1), EvalOverrunError)
    assert overrun(Progress(train_s=1e9), make_config(), eval_s=1e9) is None


def test_calls_and_money_have_limits_of_their_own(make_config):
    price = Price("p.yaml", "EUR", "2026-01-31", "me", prefill=1.0, sample=1.0, train=1.0)
    config = make_config(trainer__max_requests=10, trainer__max_cost=2.0)
    usage = ServiceUsage(requests=9, paid={"EUR": 1.9, "USD": 9.0})
    at = Progress(step=2)
    assert overspent(usage, price, at, config) is None
    error = overspent(replace(usage, requests=10), price, at, config)
    assert isinstance(error, TrainOverrunError)
    assert str(error).startswith("10 calls to the service reach trainer.max_requests (10), at step")
    error = overspent(replace(usage, paid={"EUR": 2.0}), price, at, config)
    assert str(error).startswith(
        "the service cost 2.00 EUR, which reaches trainer.max_cost (2), at step 2 of "
    )
    assert overspent(replace(usage, requests=99), None, at, make_config()) is None


@pytest.mark.parametrize(
    ("limit", "error", "step"),
    [("train_wall_s", TrainOverrunError, 1), ("eval_wall_s", EvalOverrunError, 0)],
)
def test_an_overrun_keeps_its_checkpoint_and_a_higher_limit_goes_on(
    make_trial, plain, limit, error, step
):
    want = plain[1].metrics_sha256
    trial = make_trial(**{f"budget__{limit}": 1e-9})
    with pytest.raises(error):
        trial.run()
    assert trial.last_step == step
    assert trial.checkpoints == [0, step][: step + 1]
    assert not trial.folder.done.exists()
    trial.config = make_trial("higher").config
    assert trial.run().metrics_sha256 == want


def test_a_last_step_that_ends_the_trial_is_no_overrun(make_trial):
    trial = make_trial(budget__steps=1, budget__train_wall_s=1e-9)
    assert trial.run().final_step == 1


def test_a_card_names_the_parent(make_trial):
    trial = make_trial(budget__steps=1)
    write_origin(trial.folder, Origin(kind="child", parent="p", folder="trials/p", step=4))
    trial.run()
    start = json.loads(trial.folder.model_card.read_text())["start"]
    assert (start["parent"], start["parent_step"]) == ("p", 4)
