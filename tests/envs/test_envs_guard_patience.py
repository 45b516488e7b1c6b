"""How long a call is waited for beside others that compute."""

import threading
import time

import pytest
from patience import HANG_S

from rltune_envs.guard import call
from rltune_envs.guard_batch import new_batch
from rltune_envs.guard_patience import STRETCH, Patience
from rltune_envs.guard_worker import Answer, Worker


class Hand:
    """Never answers, while others compute for a share of the time."""

    def __init__(self, share, answers_after=float("inf")):
        self.share, self.waited, self.after = share, 0.0, answers_after

    def answer(self, wait_s):
        self.waited += wait_s
        return Answer("late") if self.waited >= self.after else None

    def place(self, module):
        return ""

    def others_s(self):
        return 100.0 + self.share * self.waited


def wait(hand, limit_s):
    patience = Patience(hand, limit_s)
    while patience.left_s > 1e-9:
        if (answer := patience.answer(1.0)) is not None:
            return answer.value
    return patience.waited_s


@pytest.mark.parametrize(
    ("share", "times"),
    [
        (0.0, 1),  # nobody computes
        (0.5, 2),
        (0.75, 4),
        (0.97, STRETCH),  # 31 of 32: a thread that got no turn
        (4.0, STRETCH),  # on several cores
    ],
)
def test_time_in_which_others_compute_does_not_count(share, times):
    assert wait(Hand(share), 30.0) == pytest.approx(30.0 * times, abs=0.5)


def test_an_answer_ends_it():
    assert wait(Hand(0.97, answers_after=100.0), 30.0) == "late"
    assert wait(Hand(0.0, answers_after=100.0), 30.0) == pytest.approx(30.0)


def test_a_worker_tells_its_own_work_from_that_of_others():
    worker = Worker()
    start = worker.others_s(), time.process_time()
    worker.ask(lambda: compute(0.2))
    worker.answer(HANG_S)
    ours = worker.others_s() - start[0]
    assert ours <= time.process_time() - start[1] - 0.15
    before = worker.others_s()
    compute(0.2)
    assert worker.others_s() - before >= 0.15
    worker.end()


def test_a_call_is_waited_for_beyond_its_limit_while_others_compute(monkeypatch):
    may_return, asked = threading.Event(), []

    def others_s(worker):
        asked.append(worker)
        if len(asked) > 1:  # the limit has passed once
            may_return.set()
        return 1e6 * len(asked)

    monkeypatch.setattr(Worker, "others_s", others_s)
    new_batch()
    assert call("env f()", lambda: may_return.wait(HANG_S), limit_s=0.1)


def compute(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
    return True
