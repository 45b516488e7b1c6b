"""What the probe says of two conditions is what two trials do."""

import pytest

from rltune.trainer.probe.run import probe

ONE_STEP = {"optim__mini_batch_size": 8, "optim__micro_batch_size": 8}
SHORT = {"budget__steps": 2, "gate__every": 2}
CENTER = {"advantage": {"kind": "grpo_center"}}
NOT_COMPARED = ("timing_s/", "perf/", "step", "time")


@pytest.fixture
def run_both(make_trial):
    """Return (what the probe says, rows of the one, rows of the other) of two real trials."""

    def run(left, right, **shared):
        trials = [
            make_trial(name, **SHORT, **shared, **own) for name, own in (("a", left), ("b", right))
        ]
        (found,), failed = probe({t.folder.path.name: t.config for t in trials}, [("a", "b")])
        assert failed == {}
        for trial in trials:
            trial.run()
        return found, *([r for r in t.rows if "actor/grad_norm" in r] for t in trials)

    return run


def numbers(row):
    return {
        name: value
        for name, value in row.items()
        if isinstance(value, float) and not name.startswith(NOT_COMPARED)
    }


def test_two_names_of_one_function_are_bit_equal_trials(run_both):
    found, left, right = run_both({"advantage": {"kind": "grpo", "normalize_std": False}}, CENTER)
    assert found.kind == "equal"
    assert [numbers(row) for row in left] == [numbers(row) for row in right]


def test_no_ratio_where_the_ratio_is_1_is_one_run_but_for_rounding(run_both):
    found, left, right = run_both({"loss__kind": "ppo"}, {"loss__kind": "reinforce"}, **ONE_STEP)
    assert found.kind == "equal"
    norms = [[row["actor/grad_norm"] for row in rows] for rows in (left, right)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-3)
    rewards = [[row["rollout/reward_mean"] for row in rows] for rows in (left, right)]
    assert rewards[0] == rewards[1]


def test_a_factor_is_that_of_the_gradient_and_changes_no_sample(run_both):
    free = {"optim__grad_clip": 1e9, **ONE_STEP}
    found, left, right = run_both(CENTER, {"advantage": {"kind": "rloo"}}, **free)
    assert found.kind == "proportional"
    norms = [(b["actor/grad_norm"], a["actor/grad_norm"]) for a, b in zip(left, right, strict=True)]
    moved = [(b, a) for b, a in norms if a > 0]
    assert moved
    assert [b / a for b, a in moved] == pytest.approx([found.factor] * len(moved), rel=1e-2)
    rewards = [[row["rollout/reward_mean"] for row in rows] for rows in (left, right)]
    assert rewards[0] == rewards[1]


def test_a_near_miss_makes_other_trials(run_both):
    found, left, right = run_both({"loss__kind": "ppo"}, {"loss__kind": "reinforce"})
    assert found.kind == "different"
    norms = [[row["actor/grad_norm"] for row in rows] for rows in (left, right)]
    assert norms[0] != pytest.approx(norms[1], rel=1e-3)
