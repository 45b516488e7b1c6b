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


def test_more_time_is_given_from_now_on():
    alarm = Alarm()
    with alarm.within(1000) as give:
        give(3000)
        assert 2000 < left() <= 3000
        with alarm.within(2000):
            assert 1000 < left() <= 2000
            give(500)
            assert 0 < left() <= 500
    assert left() == 0


def test_a_deadline_that_no_timer_can_hold():
    with Alarm().within(1e12):
        assert left() > 1e7
    assert left() == 0
