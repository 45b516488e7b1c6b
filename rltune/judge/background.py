"""A coroutine in a thread of its own, while the caller does something else."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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

    with ThreadPoolExecutor(1, thread_name_prefix="judge") as pool:
        result = pool.submit(asyncio.run, run())
        try:
            yield result.result
        finally:
            loop, task = begun.result()
            if not result.done():
                with suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(task.cancel)
