"""Whose turn it is at an engine that trials share."""

import threading

import pytest
from patience import wait_until

from rltune.rollout.shared.turns import Turns


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Caller(threading.Thread):
    """Asks for a turn, notes that it has it, and keeps it until it is let go."""

    def __init__(self, turns, who, had, **options):
        super().__init__(daemon=True)
        self._turns, self._who, self._had, self._options = turns, who, had, options
        self.let_go = threading.Event()
        self.start()

    def run(self):
        with self._turns.taken(self._who, **self._options):
            self._had.append(self._who)
            self.let_go.wait()

    def end(self):
        self.let_go.set()
        self.join()


def waiting(turns, count):
    wait_until(lambda: len(turns._waiting) == count, every_s=0.001)


def test_turns_come_in_the_order_in_which_they_are_asked_for():
    turns, had = Turns(idle_s=0.0), []
    callers = []
    for number in range(4):
        callers.append(Caller(turns, number, had))
        waiting(turns, number) if number else wait_until(lambda: had == [0], every_s=0.001)
    for number, caller in enumerate(callers):
        wait_until(lambda number=number: len(had) == number + 1, every_s=0.001)
        caller.end()
    assert had == [0, 1, 2, 3]


def test_who_has_a_turn_goes_on_before_those_who_wait_until_it_is_given_up():
    clock, had = Clock(), []
    turns = Turns(idle_s=1.0, clock=clock)
    with turns.taken("first"):
        pass
    second = Caller(turns, "second", had)
    waiting(turns, 1)
    for _ in range(3):
        with turns.taken("first"):
            assert had == []
    turns.give_up("another")
    turns.give_up("first")
    wait_until(lambda: had == ["second"], every_s=0.001)
    second.end()


def test_who_is_idle_loses_it_to_one_who_waits_and_to_nobody_else():
    clock, had = Clock(), []
    turns = Turns(idle_s=1.0, clock=clock)
    with turns.taken("first"):
        clock.now = 100.0  # a call may take as long as it does
    clock.now = 500.0
    with turns.taken("first"):  # nobody waits
        pass
    second = Caller(turns, "second", had)
    waiting(turns, 1)
    assert had == []
    clock.now = 501.0
    wait_until(lambda: had == ["second"], every_s=0.001)
    second.end()


def test_who_is_gone_waits_no_more():
    turns, had = Turns(idle_s=1e9), []
    with turns.taken("first"):
        pass
    with pytest.raises(EOFError), turns.taken("dead", is_gone=lambda: True):
        pytest.fail("it has the turn")
    third = Caller(turns, "third", had)
    turns.give_up("first")
    wait_until(lambda: had == ["third"], every_s=0.001)
    third.end()
