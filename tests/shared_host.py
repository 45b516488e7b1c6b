"""An engine that trials share, hosted by a test as the driver of a sweep does."""

import socket
import threading
from contextlib import contextmanager

from rltune.rollout.shared.host import EngineHost
from rltune.rollout.shared.server import Server
from rltune.rollout.shared.turns import Turns


def server_here(address, *, idle_s=0.0):
    """Return a server in this process; whoever is idle for so long loses its turn to another."""
    server = Server(Turns(idle_s=idle_s))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(address))
    listener.listen()
    threading.Thread(target=server.work, daemon=True).start()
    threading.Thread(target=server.listen, args=(listener,), daemon=True).start()
    return server


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
