"""B8: a filter that keeps nothing, step after step, ends a trial early: a named outcome."""

from dataclasses import replace

import pytest

from rltune.errors import InterruptedRun
from rltune.trainer.checkpoint import Progress
from rltune.trainer.ending import early_stop, early_stop_metrics
from rltune.types import TrialStatus

REASON = (
    "empty_filtered_steps: the rollout filter kept nothing in 3 steps in a row "
    "(rollout_filter.empty_stop_steps)"
)
FLAG = "early_stopped/empty_filtered_steps"


def changes(**filter_):
    return {
        "rollout_filter": {"include_zero": False, "empty_stop_steps": 3, **filter_},
        "budget__steps": 7,
        "gate__every": 5,
        "checkpoint__every": 5,
    }


@pytest.mark.parametrize("kind", ["grpo", "gae"])
@pytest.mark.parametrize("on_drop", ["drop", "mask"])
def test_nothing_kept_for_long_ends_the_trial_with_a_name(make_trial, kind, on_drop):
    trial = make_trial(is_constant=True, advantage={"kind": kind}, **changes(on_drop=on_drop))
    result = trial.run()
    assert (result.status, result.reason) == (TrialStatus.STOPPED_EARLY, REASON)
    assert (result.final_step, trial.last_step) == (3, 3)
    assert trial.folder.read_done() == result
    assert [row.get(FLAG) for row in trial.rows] == [None, None, None, 1.0]
    assert "heldout/reward_mean" in trial.rows[-1]  # the final gate, off its schedule
    assert result.final_metric == trial.rows[-1]["heldout/reward_mean"]
    assert trial.checkpoints == [0, 3]
    assert trial.folder.latest.resolve().name == "step-000003"
    assert result.budget["optimizer_steps"] == (6 if on_drop == "mask" else 0)


def test_a_stop_early_is_the_same_after_a_resume(make_trial, killed):
    whole = make_trial("whole", is_constant=True, **changes()).run()
    for name, error, how in (
        ("stopped", InterruptedRun, {"stop_at": 3}),
        ("killed", killed, {"die_at": 3}),
    ):
        trial = make_trial(name, is_constant=True, **changes())
        with pytest.raises(error):
            trial.run(**how)
        again = trial.run()
        assert (again.status, again.reason) == (whole.status, whole.reason)
        assert again.metrics_sha256 == whole.metrics_sha256


def test_killed_before_done_was_written_it_makes_no_further_step(make_trial):
    trial = make_trial(is_constant=True, **changes())
    want = trial.run()
    trial.folder.done.unlink()
    assert replace(trial.run(), total_s=0.0) == replace(want, total_s=0.0)
    assert trial.last_step == 3


def test_a_trial_that_learns_goes_on(make_trial):
    trial = make_trial(**{**changes(), "budget__steps": 4})
    result = trial.run()
    assert (result.status, result.reason, result.final_step) == (TrialStatus.DONE, "", 4)
    assert not any(FLAG in row for row in trial.rows)


@pytest.mark.parametrize(
    ("step", "empty", "is_early"),
    [
        pytest.param(5, 2, False, id="not long enough"),
        pytest.param(5, 3, True, id="long enough"),
        pytest.param(7, 3, False, id="it was the last step anyway"),
    ],
)
def test_the_rule_by_hand(make_config, step, empty, is_early):
    config = make_config(**changes())
    reason = early_stop(Progress(step=step, consecutive_empty=empty), config)
    assert reason == (REASON if is_early else "")
    assert early_stop_metrics(reason) == ({FLAG: 1.0} if is_early else {})
