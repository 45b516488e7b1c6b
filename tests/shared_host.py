"""An engine that trials share, hosted by a test as the driver of a sweep does."""

import threading
from contextlib import contextmanager

from rltune.rollout.shared.host import EngineHost


@contextmanager
def hosting(folder, **options):
    """Yield a host that starts its engine's process whenever a trial calls and none is there."""
    is_over = threading.Event()
    defaults = {"gpu": "", "threads": 1, "variables": {}}
    with EngineHost(folder, **{**defaults, **options}) as host:

        def keep():
            while not is_over.wait(0.05):
                host.keep()

        keeper = threading.Thread(target=keep, daemon=True)
        keeper.start()
        try:
            yield host
        finally:
            is_over.set()
            keeper.join()


@contextmanager
def sampling(engine, requests, params):
    """Have an engine sample all the time, as a trial that shares it; yield a list of its calls."""
    is_over, calls = threading.Event(), []

    def sample():
        while not is_over.is_set():
            calls.append(len(engine.generate(requests, params)))
            engine.release()

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield calls
    finally:
        is_over.set()
        thread.join()
        engine.close()
