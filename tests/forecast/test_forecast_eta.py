import pytest
from cases import each

from rltune.forecast.eta import (
    Timing,
    gates_left,
    most_at_once,
    pooled,
    seconds_left,
    sweep_seconds_left,
    timing_of,
)

TIMING = Timing(start_s=7.0, step_s=2.0, gate_s=4.0)


def row(step, time, **extra):
    return {"step": step, "time": time, **extra}


def test_a_gate_is_no_part_of_a_step():
    rows = [
        row(0, 100.0, **{"timing_s/eval": 4.0}),
        row(1, 102.0),
        row(2, 108.0, **{"timing_s/eval": 4.0}),  # 6 s, 4 of them its gate
    ]
    assert timing_of(rows, started=93.0) == TIMING
    assert timing_of(rows, started=None).start_s is None
    assert timing_of(rows[1:], started=93.0).start_s is None  # cut: its first line is not the start


def test_a_pause_between_two_attempts_does_not_slow_a_trial():
    rows = [row(step, 2.0 * step + 1000.0 * (step > 3)) for step in range(8)]
    assert timing_of(rows, started=None).step_s == 2.0


def test_only_the_newest_twenty_steps_count():
    slow = [row(step, 10.0 * step) for step in range(30)]
    fast = [row(30 + i, 290.0 + 1.0 * (i + 1)) for i in range(20)]
    assert timing_of([*slow, *fast], started=None).step_s == 1.0


def test_timing_of_nothing():
    assert timing_of([], started=1.0) == Timing()
    assert pooled([]) == Timing()


def test_the_pool_is_the_median_of_those_that_measured():
    found = pooled(
        [Timing(step_s=1.0), Timing(step_s=2.0, gate_s=8.0), Timing(step_s=9.0), Timing()]
    )
    assert found == Timing(step_s=2.0, gate_s=8.0)


@each(
    ("step", "steps", "every", "left"),
    [
        (0, 20, 10, 2),
        (9, 20, 10, 2),
        (10, 20, 10, 1),
        (20, 20, 10, 0),
        (0, 25, 10, 3),  # 10, 20, and the last step
        (24, 25, 10, 1),
        (25, 25, 10, 0),
        (0, 5, 10, 1),
    ],
)
def test_gates_left(step, steps, every, left):
    assert gates_left(step, steps=steps, every=every) == left


@pytest.mark.parametrize(
    ("step", "has_begun", "seconds"),
    [
        pytest.param(5, True, 38.0, id="running"),  # 15 x 2 + 2 gates x 4
        pytest.param(None, True, 55.0, id="before-the-first-gate"),  # 7 + 20 x 2 + 2 x 4
        pytest.param(None, False, 55.0, id="not-started"),
        pytest.param(5, False, 45.0, id="interrupted"),  # 7 + 38
    ],
)
def test_seconds_left(step, has_begun, seconds):
    found = seconds_left(step, TIMING, steps=20, every=10, has_begun=has_begun)
    assert found == seconds


def test_nothing_is_said_before_a_step_was_measured():
    timing = Timing(start_s=7.0, gate_s=4.0)
    assert seconds_left(0, timing, steps=20, every=10, has_begun=True) is None


@each(
    ("left", "at_once", "seconds"),
    [
        ([10.0, 30.0], 1, 40.0),
        ([10.0, 30.0], 2, 30.0),  # not 20: the longer one takes 30
        ([10.0, 10.0, 10.0], 2, 15.0),
        ([5.0], 4, 5.0),
        ([5.0, None], 2, None),
        ([], 2, None),
    ],
)
def test_a_sweep_takes_as_long_as_its_trials_at_once(left, at_once, seconds):
    assert sweep_seconds_left(left, at_once=at_once) == seconds


def entry(time, event, trial, launch="launch-0002"):
    return {"time": time, "event": event, "trial_id": trial, "launch": launch}


def test_the_ledger_tells_how_many_ran_at_once():
    first = [entry("1", "started", name, "launch-0001") for name in "abc"]
    turns = [
        entry("2", "planned", "d"),
        entry("3", "started", "a"),
        entry("4", "started", "c"),  # the same second as the end of a: they took turns
        entry("4", "done", "a"),
    ]
    assert most_at_once(first) == 3
    assert most_at_once([*first, *turns]) == 1  # the newest launch alone
    assert most_at_once([*first, *turns, entry("5", "started", "b")]) == 2
    assert most_at_once([{"odd": 1}]) == 1
