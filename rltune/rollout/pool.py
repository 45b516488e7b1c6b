"""Threads in which environments step and verifiers score, so that nobody waits for a slow service.

What a piece of work returns is placed by its key. How many threads there are changes how long the
work takes, and no number.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, Self, TypeVar

from rltune_envs.errors import HungCodeError
from rltune_envs.guard import release_worker
from rltune_envs.guard_batch import at_place, current_batch
from rltune_envs.guard_worker import Answer, attempt

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_Answers = SimpleQueue[tuple[int, Answer]]  # with their places


@dataclass(frozen=True, slots=True)
class _Work(Generic[T_co]):
    key: int
    place: int
    ask: Callable[[], T_co]

    def do(self) -> T_co:
        with at_place(self.place):
            return self.ask()


class Pool:
    """Does work in up to `workers` threads; with one worker, in the calling thread.

    The work of one key is always done in one thread, so that what an environment opened there can
    be used there. The threads end with the `with` block.

    Args:
        workers: Pieces of work at a time.

    Raises:
        ValueError: `workers` is below 1.

    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise ValueError(f"workers: {workers} is below 1; at least one does the work")
        self._n_workers = workers
        self._threads: dict[int, _Thread] = {}
        self._keys: dict[int, int] = {}  # place -> key, of the work that was submitted
        self._answers: _Answers = SimpleQueue()

    @property
    def is_concurrent(self) -> bool:
        """Whether work goes on while its caller does something else."""
        return self._n_workers > 1

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Have each thread end after what it is doing."""
        for thread in self._threads.values():
            thread.end()

    def run(self, work: Mapping[int, Callable[[], T]]) -> dict[int, T | HungCodeError]:
        """Do all work; return what came of it, by key, in the order given.

        A `HungCodeError` stands for work that does not count: calls of too many before it hung.

        Raises:
            Exception: What the first piece of work in this order raised.

        """
        batch = current_batch()
        places = batch.take_places(len(work))
        todo = [
            _Work(key, place, ask) for place, (key, ask) in zip(places, work.items(), strict=True)
        ]
        done = _in_order(todo) if self._n_workers == 1 else self._at_once(todo)
        return {each.key: batch.refusal(each.place) or done[each.place] for each in todo}

    def submit(self, key: int, place: int, ask: Callable[[], object]) -> None:
        """Begin a piece of work; `finished` returns what comes of it.

        With one worker it is done at once. `place` is its place in the batch: see `guard_batch`.
        """
        self._keys[place] = key
        work = _Work(key, place, ask)
        if self.is_concurrent:
            self._thread_of(key).take([work], self._answers)
        else:
            self._answers.put((place, Answer(work.do())))

    def finished(self, *, wait: bool) -> list[tuple[int, Any]]:
        """Return what came of submitted work since the last call, by key, in the order of places.

        Args:
            wait: Wait for one at least. Some work must be under way.

        Raises:
            Exception: What the first piece of work under way raised; all others were waited for.

        """
        given = [_require_going_on(self._answers.get())] if wait else []
        has_failed = any(answer.error is not None for _, answer in given)
        while (has_failed and len(given) < len(self._keys)) or not self._answers.empty():
            given.append(_require_going_on(self._answers.get()))
            has_failed = has_failed or given[-1][1].error is not None
        ordered = sorted(given, key=lambda one: one[0])
        return [(self._keys.pop(place), _value(answer)) for place, answer in ordered]

    def _thread_of(self, key: int) -> "_Thread":
        number = key % self._n_workers
        if number not in self._threads:
            self._threads[number] = _Thread()
        return self._threads[number]

    def _at_once(self, todo: Sequence[_Work[T]]) -> dict[int, T]:
        answers: _Answers = SimpleQueue()
        shares: dict[_Thread, list[_Work[T]]] = {}
        for each in todo:
            shares.setdefault(self._thread_of(each.key), []).append(each)
        for thread, share in shares.items():
            thread.take(share, answers)
        given = dict(_require_going_on(answers.get()) for _ in todo)
        return {each.place: _value(given[each.place]) for each in todo}


def _in_order(todo: Sequence[_Work[T]]) -> dict[int, T]:
    return {each.place: each.do() for each in todo}


def _require_going_on(answer: tuple[int, Answer]) -> tuple[int, Answer]:
    """Raise at once what ends the whole batch: a stop that was asked for."""
    error = answer[1].error
    if error is not None and not isinstance(error, Exception):
        raise error
    return answer


def _value(answer: Answer) -> Any:
    if answer.error is not None:
        raise answer.error
    return answer.value


_Share = tuple[Context, Sequence[_Work[object]], _Answers]


class _Thread:
    """A thread that does its share of the work, piece by piece."""

    def __init__(self) -> None:
        self._shares: SimpleQueue[_Share | None] = SimpleQueue()
        self._has_ended = False
        threading.Thread(target=self._run, name="episodes", daemon=True).start()

    def take(self, share: Sequence[_Work[object]], answers: _Answers) -> None:
        """Do work in the caller's context, which holds its batch."""
        self._shares.put((copy_context(), share, answers))

    def end(self) -> None:
        """Do nothing after the present piece."""
        self._has_ended = True
        self._shares.put(None)

    def _run(self) -> None:
        while (taken := self._shares.get()) is not None:
            context, share, answers = taken
            for each in share:
                if not self._has_ended:
                    answers.put((each.place, context.run(attempt, each.do)))
        release_worker()
