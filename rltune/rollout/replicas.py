"""Engines of one policy that share the requests of a call, each in a process of its own."""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from typing import TypeVar

from rltune.rollout.distant_engine import DistantEngine
from rltune.rollout.engine import Batching, Completion, Engine, Request, SamplingParams
from rltune.rollout.engine_process import ProcessEngine

T = TypeVar("T")


class Replicas:
    """Engine of several.

    A conversation's number alone decides which one samples it, turn after turn: so a trial repeats,
    resumed or not.

    Args:
        engines: Serve the same policy; they are closed with this one.
        block: Conversations in a row that one engine samples: those of a group begin alike.

    """

    def __init__(self, engines: Sequence[ProcessEngine], *, block: int) -> None:
        self.engines = tuple(engines)
        self._block = block
        self._threads = ThreadPoolExecutor(len(self.engines))

    @property
    def batching(self) -> Batching:
        """As each of them."""
        return self.engines[0].batching

    def generate(self, requests: Sequence[Request], params: SamplingParams) -> list[Completion]:
        """Sample one response per request, each engine its share at the same time."""
        places = self._places(requests)
        shares = [[requests[place] for place in own] for own in places]
        sampled = self._together(
            [
                partial(engine.generate, share, params)
                for engine, share in zip(self.engines, shares, strict=True)
            ]
        )
        by_place = {
            place: completion
            for own, completions in zip(places, sampled, strict=True)
            for place, completion in zip(own, completions, strict=True)
        }
        return [by_place[place] for place in range(len(requests))]

    def submit(self, requests: Sequence[Request], params: SamplingParams) -> None:
        """Take requests; `advance` decodes them."""
        for engine, places in zip(self.engines, self._places(requests), strict=True):
            if places:
                engine.submit([requests[place] for place in places], params)

    def advance(self) -> list[tuple[int, Completion]]:
        """Have each decode some tokens at the same time; return what ended."""
        ended = self._together([engine.advance for engine in self.engines])
        return [one for of_engine in ended for one in of_engine]

    def abandon(self) -> None:
        """Drop the requests under way."""
        for engine in self.engines:
            engine.abandon()

    def sync(self) -> None:
        """Have each serve the trainer's current weights."""
        self._together([engine.sync for engine in self.engines])

    def release(self) -> None:
        """Have each free what is not needed until the next call."""
        self._together([engine.release for engine in self.engines])

    def close(self) -> None:
        """End all; may be called twice."""
        for engine in self.engines:
            engine.close()
        self._threads.shutdown()

    def _places(self, requests: Sequence[Request]) -> list[list[int]]:
        """Return for each engine the places of its requests."""
        places: list[list[int]] = [[] for _ in self.engines]
        for place, request in enumerate(requests):
            places[request.conversation // self._block % len(places)].append(place)
        return places

    def _together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make a call of each engine; the first error ends all, as does one of this thread."""
        futures = [self._threads.submit(call) for call in calls]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        except BaseException:
            for engine in self.engines:
                engine.kill()  # a call under way sees it, and ends
            wait(futures)
            for engine in self.engines:
                engine.end()
            raise
        return [future.result() for future in futures]


def start_replicas(makers: Sequence[Callable[[], ProcessEngine]], *, block: int) -> Replicas:
    """Start engines at the same time; where one does not start, none is left.

    Args:
        makers: Each starts one.
        block: As in `Replicas`.

    """
    with ThreadPoolExecutor(len(makers)) as threads:
        futures = [threads.submit(make) for make in makers]
    errors = [error for future in futures if (error := future.exception()) is not None]
    started = [future.result() for future in futures if future.exception() is None]
    if errors:
        for engine in started:
            engine.close()
        raise errors[0]
    return Replicas(started, block=block)


def replicas_of(engine: Engine) -> Sequence[Engine]:
    """Return the engines that an engine consists of: itself, where it is one."""
    return engine.engines if isinstance(engine, Replicas) else (engine,)


def kill(engine: Engine) -> None:
    """Kill an engine that is elsewhere, for this trial: a call in another thread then raises."""
    for one in replicas_of(engine):
        if isinstance(one, DistantEngine):
            one.kill()


def engine_name(nth: int, count: int) -> str:
    """Return what errors call an engine, the `nth` of so many."""
    return "the rollout engine" if count == 1 else f"rollout engine {nth} of {count}"
