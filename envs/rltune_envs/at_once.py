"""Questions about many tasks, asked of several equal environments at the same time."""

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import TypeVar

from rltune_envs.base import Task, TextEnv
from rltune_envs.guard import release_worker
from rltune_envs.guard_batch import at_place, current_batch
from rltune_envs.guard_worker import Answer, attempt

T = TypeVar("T")


def of_each(
    ask: Callable[[TextEnv, Task], T], envs: Sequence[TextEnv], tasks: Sequence[Task]
) -> list[T]:
    """Return what is answered for each task, in order; how many environments there are, no matter.

    Each environment is asked in a thread of its own; one alone, in the calling thread. A task after
    one that failed may be left out.

    Raises:
        Exception: What the first task in order raised.

    """
    if len(envs) == 1:
        return [ask(envs[0], task) for task in tasks]
    round_ = _Round(ask, tasks)
    threads = [
        threading.Thread(target=copy_context().run, args=(round_.run, env), daemon=True)
        for env in envs[: len(tasks)]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return round_.answers()


class _Round:
    """The tasks of one call, handed out in order."""

    def __init__(self, ask: Callable[[TextEnv, Task], T], tasks: Sequence[Task]) -> None:
        self._ask, self._tasks = ask, tasks
        self._batch = current_batch()
        self._places = self._batch.take_places(len(tasks))
        self._answers: dict[int, Answer] = {}
        self._lock = threading.Lock()
        self._n_taken = 0

    def run(self, env: TextEnv) -> None:
        """Ask one environment about tasks until none is left, or one has failed."""
        while (index := self._take()) is not None:
            with at_place(self._places[index]):
                answer = attempt(lambda index=index: self._ask(env, self._tasks[index]))  # type: ignore[misc]
            with self._lock:
                self._answers[index] = answer
                if answer.error is not None:
                    self._n_taken = len(self._tasks)
        release_worker()

    def answers(self) -> list[T]:
        for index in sorted(self._answers):
            refusal = self._batch.refusal(self._places[index])
            error = refusal or self._answers[index].error
            if error is not None:
                raise error
        return [self._answers[index].value for index in range(len(self._tasks))]  # type: ignore[misc]

    def _take(self) -> int | None:
        with self._lock:
            if self._n_taken >= len(self._tasks):
                return None
            self._n_taken += 1
            return self._n_taken - 1
