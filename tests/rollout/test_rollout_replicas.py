"""Several engines share the requests of a call: who samples what, and how one's end ends all."""

from functools import partial

import psutil
import pytest
from engine_makers import NoModel, process_engine, scripted_engine
from patience import wait_until
from process_engines import refusing

from rltune.errors import EngineDiedError, InputError, Problem
from rltune.rollout.engine import Completion, Request, SamplingParams
from rltune.rollout.replicas import Replicas, kill, replicas_of, start_replicas
from rltune.types import StopReason

PARAMS = SamplingParams(temperature=1.0, max_tokens=8, max_context=200)


class Recording:
    """Stands in for an engine; answers with its number and remembers what it was asked."""

    def __init__(self, number):
        self._number, self._under_way = number, []
        self.asked, self.calls = [], []

    def generate(self, requests, params):
        self.asked.append([request.conversation for request in requests])
        return [self._answer(request) for request in requests]

    def submit(self, requests, params):
        self._under_way += requests

    def advance(self):
        ended, self._under_way = self._under_way, []
        return [(request.conversation, self._answer(request)) for request in ended]

    def sync(self):
        self.calls.append("sync")

    def release(self):
        self.calls.append("release")

    def close(self):
        self.calls.append("close")

    def _answer(self, request):
        return Completion((self._number, request.conversation), (0.0, 0.0), StopReason.LENGTH)


def asked(numbers):
    return [Request(number, [4], number) for number in numbers]


def test_a_conversation_has_one_engine_whatever_else_is_asked():
    """Blocks of two, in turns: 0 1 to the first, 2 3 to the second, 4 5 to the third, 6 7 again."""
    engines = [Recording(number) for number in range(3)]
    shared = Replicas(engines, block=2)
    completions = shared.generate(asked([7, 0, 3, 4, 1, 6]), PARAMS)
    assert [completion.token_ids for completion in completions] == [
        (0, 7), (0, 0), (1, 3), (2, 4), (0, 1), (0, 6),
    ]  # fmt: skip
    assert [engine.asked for engine in engines] == [[[7, 0, 1, 6]], [[3]], [[4]]]
    shared.submit(asked([4, 0]), PARAMS)
    ended = {number: completion.token_ids[0] for number, completion in shared.advance()}
    assert ended == {4: 2, 0: 0}
    assert shared.advance() == []


def test_all_are_synced_and_released_and_are_what_is_checked():
    engines = [Recording(number) for number in range(2)]
    shared = Replicas(engines, block=1)
    shared.sync()
    shared.release()
    assert [engine.calls for engine in engines] == [["sync", "release"]] * 2
    assert list(replicas_of(shared)) == engines
    assert list(replicas_of(engines[0])) == engines[:1]


def maker(number, make=scripted_engine):
    return partial(process_engine, make, NoModel(), name=f"rollout engine {number} of 2")


def cannot_start():
    raise InputError(Problem("rollout.engine", "it is too warm today.", action="Wait."))


def test_one_that_cannot_start_leaves_none():
    engines = [Recording(number) for number in range(2)]
    with pytest.raises(InputError, match="it is too warm today"):
        start_replicas([lambda: engines[0], cannot_start, lambda: engines[1]], block=1)
    assert [engine.calls for engine in engines] == [["close"]] * 2


@pytest.mark.slow
def test_one_whose_process_cannot_start_leaves_no_process():
    before = psutil.Process().children()
    with pytest.raises(InputError, match="it is too warm today"):
        start_replicas([maker(1), maker(2, refusing)], block=1)
    assert psutil.Process().children() == before


@pytest.mark.slow
def test_a_killed_one_is_named_and_ends_the_others():
    shared = start_replicas([maker(1), maker(2)], block=1)
    processes = [engine._process for engine in shared.engines]
    kill(shared.engines[1])
    with pytest.raises(
        EngineDiedError, match=r"^rollout engine 2 of 2's process ended by signal 9"
    ):
        shared.generate(asked(range(4)), PARAMS)
    wait_until(lambda: all(process.poll() is not None for process in processes))
    shared.abandon()  # as what played does then; nothing is asked of a process that is gone
    shared.close()
    shared.close()


@pytest.mark.slow
def test_all_are_killed_where_what_they_sample_is_not_needed_any_more():
    shared = start_replicas([maker(1), maker(2)], block=1)
    processes = [engine._process for engine in shared.engines]
    kill(shared)
    wait_until(lambda: all(process.poll() is not None for process in processes))
    with pytest.raises(EngineDiedError, match="ended by signal 9"):
        shared.generate(asked(range(4)), PARAMS)
    shared.close()


def test_an_engine_without_a_process_has_none_to_kill():
    kill(Recording(0))
