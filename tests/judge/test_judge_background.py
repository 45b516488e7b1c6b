"""A coroutine in another thread: its result, its error, and its end with the caller's."""

import asyncio
import threading

import pytest
from patience import HANG_S

from rltune.judge.background import in_background


def test_the_caller_goes_on_and_gets_the_result_when_it_asks():
    go_on = threading.Event()

    async def wait():
        assert await asyncio.to_thread(go_on.wait, HANG_S)
        return 7

    with in_background(wait()) as answer:
        go_on.set()  # a caller that had to wait would never get here
        assert answer() == 7
        assert answer() == 7


def test_an_error_is_the_callers_once_it_asks():
    async def fail():
        raise ZeroDivisionError("here")

    with in_background(fail()) as answer, pytest.raises(ZeroDivisionError, match="here"):
        answer()
    with in_background(fail()):
        pass


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_caller_that_leaves_ends_it(error):
    ended = []

    async def endless():
        try:
            await asyncio.sleep(HANG_S)
        finally:
            ended.append(True)

    with pytest.raises(error), in_background(endless()):
        raise error
    assert ended == [True] or ended == []  # it may not have begun to sleep
    assert not [one for one in threading.enumerate() if one.name.startswith("judge")]


def test_it_may_be_used_inside_a_running_loop():
    async def inner():
        return 3

    async def outer():
        with in_background(inner()) as answer:
            return answer()

    assert asyncio.run(outer()) == 3


def test_a_loop_that_cannot_be_opened_is_an_error(monkeypatch):
    # As when the process has no file left to open.
    def refuse():
        raise OSError("Too many open files")

    async def inner():
        return 3

    monkeypatch.setattr(asyncio.events, "new_event_loop", refuse)
    with pytest.raises(OSError, match="Too many open files"), in_background(inner()) as answer:
        answer()
