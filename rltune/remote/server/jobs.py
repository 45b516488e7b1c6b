"""Work in the order of arrival, in one thread; a request that is known is not run again."""

import queue
import threading
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rltune.remote.server.wire import RefusedError

Answer = bytes | dict[str, Any]
"""Protocol buffers, or JSON."""

_GATHER_S = 0.01  # requests of one turn arrive within milliseconds; they are sampled together
_KEPT = 256  # answers kept after they were fetched: a fetch whose answer is lost is repeated


@dataclass(frozen=True, slots=True)
class Job:
    """Work for the thread.

    Attributes:
        run: Answers a list of payloads, in order.
        payload: What is asked.
        group: Jobs of one group that wait side by side are run together; None runs alone.

    """

    run: Callable[[Sequence[Any]], Sequence[Answer]]
    payload: Any
    group: Hashable | None = None


@dataclass(slots=True)
class _Entry:
    done: threading.Event = field(default_factory=threading.Event)
    answer: Answer | None = None


class Jobs:
    """A queue with one worker thread.

    The idempotence rule of the server: a request is named by its client and its place in that
    client's order, and runs once, however often it is sent.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._fetched: deque[str] = deque()
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[str, Job] | None] = queue.SimpleQueue()
        self._held: tuple[str, Job] | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def submit(self, name: str, job: Job) -> None:
        """Queue a job, unless its name is known."""
        with self._lock:
            if name in self._entries:
                return
            self._entries[name] = _Entry()
        self._queue.put((name, job))

    def fetch(self, name: str, *, timeout_s: float) -> Answer | None:
        """Return an answer; None when it is not there in time.

        Raises:
            KeyError: The name is unknown, or its answer was fetched long ago.

        """
        with self._lock:
            entry = self._entries[name]
        if not entry.done.wait(timeout_s):
            return None
        with self._lock:
            if name not in self._fetched:
                self._fetched.append(name)
            while len(self._fetched) > _KEPT:
                self._entries[self._fetched.popleft()].answer = None
        if entry.answer is None:
            raise KeyError(name)
        return entry.answer

    def close(self) -> None:
        """End the thread after the job that runs."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            job = batch[0][1]
            try:
                answers = job.run([one.payload for _, one in batch])
            except RefusedError as error:
                answers = [{"error": str(error), "category": "user"}] * len(batch)
            except Exception as error:  # the thread serves all: a fault is the answer to this one
                traceback.print_exc()
                text = "".join(traceback.format_exception_only(error)).strip()
                answers = [{"error": text, "category": "server"}] * len(batch)
            for (name, _), answer in zip(batch, answers, strict=True):
                entry = self._entries[name]
                entry.answer = answer
                entry.done.set()

    def _next(self) -> list[tuple[str, Job]] | None:
        """Wait for a job; return it with those that wait behind it and belong to its group."""
        first = self._held or self._queue.get()
        self._held = None
        if first is None:
            return None
        batch = [first]
        if first[1].group is None:
            return batch
        time.sleep(_GATHER_S)
        while not self._queue.empty():
            following = self._queue.get()
            if following is None or following[1].group != first[1].group:
                self._held = following
                if following is None:
                    self._queue.put(None)
                break
            batch.append(following)
        return batch
