"""One timer of the system for the calls of many threads."""

import signal

from rltune_envs.guard_alarm import Alarm


def left():
    return signal.getitimer(signal.ITIMER_REAL)[0]


def test_the_earliest_deadline_counts():
    alarm = Alarm()
    with alarm.within(2000):
        with alarm.within(1000):
            assert 0 < left() <= 1000
            with alarm.within(3000):
                assert 0 < left() <= 1000
        assert 1000 < left() <= 2000
    assert left() == 0


def test_a_deadline_that_no_timer_can_hold():
    with Alarm().within(1e12):
        assert left() > 1e7
    assert left() == 0
