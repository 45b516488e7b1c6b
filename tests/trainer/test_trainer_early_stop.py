"""Trials that have collapsed end with a name: rewards without spread, held-out success lost."""

from dataclasses import replace

import pytest

from rltune.gate import GateResult
from rltune.trainer import controllers
from rltune.trainer import step as training
from rltune.trainer.checkpoint import Progress
from rltune.trainer.controllers import Controllers, Spread
from rltune.trainer.ending import early_stop, early_stop_metrics
from rltune.types import TrialStatus

SPREAD = {
    "early_stop": {"reward_std_share": 0.1, "reward_std_steps": 2},
    "budget__steps": 7,
    "gate__every": 20,
    "checkpoint__every": 3,
}
SPREAD_REASON = (
    "reward_variance_collapse: rewards in a group spread less than 0.1 of the start in 2 steps in "
    "a row (early_stop.reward_std_share)"
)
LOST = {
    "early_stop": {"heldout_success": 1.0, "heldout_gates": 3},
    "optim__lr": 1e-9,  # the start stays the best, so no gate after it asks for a checkpoint
    "budget__steps": 9,
    "gate__every": 2,
    "checkpoint__every": 3,
}
LOST_REASON = (
    "heldout_collapse: held-out success was below 1 at 3 gates in a row "
    "(early_stop.heldout_success)"
)


@pytest.fixture
def fading(monkeypatch, up_env):
    """Let the training tasks pay nothing after step 2, which here ends the start."""
    reset, step, now = up_env.reset, up_env.step, {}

    def begun(self, *, seed):
        self.is_early = seed >= 100 or now["step"] <= 2
        return reset(self, seed=seed)

    def faded(self, response):
        made = step(self, response)
        return made if self.is_early else replace(made, reward=0.0)

    def collect(*given, **keywords):
        now["step"] = keywords["step"]
        return real(*given, **keywords)

    real = training.collect
    monkeypatch.setattr(training, "collect", collect)
    monkeypatch.setattr(up_env, "reset", begun)
    monkeypatch.setattr(up_env, "step", faded)
    monkeypatch.setattr(controllers, "FIRST_STEPS", 2)


RULES = {
    "spread": (SPREAD, SPREAD_REASON, 4),
    "lost": (LOST, LOST_REASON, 4),  # the gates at 0, 2 and 4
}


@pytest.fixture(params=RULES)
def rule(request, fading):
    return RULES[request.param]


def test_a_rule_ends_a_trial_with_its_name_and_so_it_does_after_a_resume(make_trial, killed, rule):
    changes, reason, step = rule
    trial = make_trial(**changes)
    result = trial.run()
    assert (result.status, result.reason) == (TrialStatus.STOPPED_EARLY, reason)
    assert (result.final_step, trial.last_step) == (step, step)
    flag = f"early_stopped/{reason.partition(':')[0]}"
    assert [row["step"] for row in trial.rows if flag in row] == [step]
    assert "heldout/reward_mean" in trial.rows[-1]
    assert trial.folder.read_done() == result
    # The last step has a checkpoint, on its schedule or not.
    assert trial.checkpoints[-1] == step
    assert trial.folder.latest.resolve().name == f"step-{step:06d}"

    trial = make_trial("killed", **changes)
    for die_at in (step - 1, step):
        with pytest.raises(killed):
            trial.run(die_at=die_at)
    again = trial.run()
    assert (again.reason, again.final_step) == (reason, step)
    assert again.metrics_sha256 == result.metrics_sha256
    trial.folder.done.unlink()
    assert trial.run().metrics_sha256 == result.metrics_sha256
    assert trial.last_step == step


def test_a_filter_that_keeps_nothing_does_not_hide_the_lost_spread(make_trial, fading):
    """The same step ends it, whether dropped groups leave the batch or stay in it masked."""
    for on_drop in ("drop", "mask"):
        filtered = {"rollout_filter": {"include_zero": False, "on_drop": on_drop}}
        result = make_trial(on_drop, **SPREAD, **filtered).run()
        assert (result.reason, result.final_step) == (SPREAD_REASON, 4)


FLAT_REASON = (
    "no_spread_since_start: rewards in every group were equal in all 2 steps since the start, so "
    "no response was better than another (early_stop.reward_std_share)"
)


def test_no_spread_since_the_start_has_a_name_of_its_own(make_trial):
    """K12: there is no start to compare with."""
    result = make_trial(is_constant=True, **SPREAD).run()
    assert (result.status, result.reason) == (TrialStatus.STOPPED_EARLY, FLAT_REASON)
    assert result.final_step == 2


def test_single_rollouts_have_no_spread_to_lose(make_trial):
    """An axis may lead there: with one episode a prompt nobody knows a spread."""
    alone = {"rollout__group_size": 1, "rollout__groups": 4, "advantage": {"kind": "gae"}}
    result = make_trial(is_constant=True, **{**SPREAD, **alone, "budget__steps": 3}).run()
    assert result.status is TrialStatus.DONE


def test_without_the_rules_it_goes_on(make_trial, fading):
    trial = make_trial(**{**SPREAD, "early_stop": {}, "budget__steps": 5})
    assert trial.run().status is TrialStatus.DONE
    assert [row["rollout/in_group_reward_std"] for row in trial.rows[-3:]] == [0, 0, 0]
    assert not any(name.startswith("early_stopped/") for row in trial.rows for name in row)


def test_faults_are_no_collapse(make_trial, fading, up_env, monkeypatch):
    """Nobody knows the spread of rewards while the retriever is down."""
    reset = up_env.reset

    def broken(self, *, seed):
        shown = reset(self, seed=seed)
        self._fault = "" if self.is_early else "retriever: it is down"
        return shown

    monkeypatch.setattr(up_env, "reset", broken)
    result = make_trial(**{**SPREAD, "budget__steps": 4}).run()
    assert (result.status, result.final_step) == (TrialStatus.DONE, 4)


@pytest.mark.parametrize(
    ("n_low", "step", "is_early"), [(1, 4, False), (2, 4, True), (3, 4, True), (2, 7, False)]
)
def test_the_spread_rule_by_hand(make_config, n_low, step, is_early):
    progress = Progress(step=step, controllers=Controllers(spread=Spread(1.0, 10, n_low)))
    reason = early_stop(progress, make_config(**SPREAD))
    assert reason == (SPREAD_REASON.replace("2 steps", f"{n_low} steps") if is_early else "")
    flag = {"early_stopped/reward_variance_collapse": 1.0}
    assert early_stop_metrics(reason) == (flag if is_early else {})


@pytest.mark.parametrize(
    ("successes", "is_early"),
    [
        pytest.param([0, 0], False, id="too few gates"),
        pytest.param([4, 0, 0, 0], True, id="the last three"),
        pytest.param([0, 0, 0, 4], False, id="it came back"),
        pytest.param([2, 1, 2], True, id="2 of 5 are below one half"),
        pytest.param([3, 1, 2], False, id="3 of 5 are not"),
    ],
)
def test_the_heldout_rule_by_hand(make_config, successes, is_early):
    gates = tuple(GateResult(step, 0.0, 5, n) for step, n in enumerate(successes))
    changes = {**LOST, "early_stop": {"heldout_success": 0.5, "heldout_gates": 3}}
    reason = early_stop(Progress(step=3, gates=gates), make_config(**changes))
    assert reason.partition(":")[0] == ("heldout_collapse" if is_early else "")


def test_a_gate_of_faults_alone_is_no_lost_one(make_config):
    gates = tuple(GateResult(step, float("nan"), 0, 0) for step in range(3))
    assert early_stop(Progress(step=3, gates=gates), make_config(**LOST)) == ""
