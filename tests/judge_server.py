"""The scripted judge on a thread of this process."""

from contextlib import contextmanager
from threading import Thread
from types import SimpleNamespace

import httpx

from rltune.judge.scripted_server import ScriptedServer, parse_faults


@contextmanager
def judge_server(faults="", *, key, delay_s=0.0):
    """Serve, give the address and what reads the counts, and stop."""
    server = ScriptedServer(faults=parse_faults(faults), delay_s=delay_s, key=key)
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()

    def stats():
        return httpx.get(f"{server.url.removesuffix('/v1')}/stats", trust_env=False).json()

    try:
        yield SimpleNamespace(url=server.url, stats=stats)
    finally:
        server.stopping.set()
        server.shutdown()
        thread.join()
        server.server_close()
