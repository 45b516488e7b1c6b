"""A coroutine in a thread of its own, while the caller does something else."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def in_background(coroutine: Coroutine[Any, Any, T]) -> Iterator[Callable[[], T]]:
    """Run a coroutine; what is yielded waits for its result, or raises what it raised.

    The end of the context cancels it where it has not ended, and waits for that.
    """
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = Future()

    async def run() -> T:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        return await coroutine

    def work() -> T:
        try:
            with asyncio.Runner() as runner:
                runner.get_loop()  # may fail; then nothing may be left that waits to be awaited
                return runner.run(run())
        finally:
            coroutine.close()

    with ThreadPoolExecutor(1, thread_name_prefix="judge") as pool:
        result = pool.submit(work)
        both: list[Future[Any]] = [begun, result]
        try:
            yield result.result
        finally:
            wait(both, return_when=FIRST_COMPLETED)  # a loop that cannot be opened never begins
            if not result.done():
                loop, task = begun.result()
                with suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(task.cancel)
