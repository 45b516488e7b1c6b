"""Time to play episodes whose retriever is slow, with more and more workers.

    python benchmarks/latency.py [--latency-ms 50] [--episodes 128] [--searches 4]

A retriever in another process answers each search after the latency. The policy is a script, so
that nearly all the time is waiting: one call after another takes latency x searches x episodes, all
at once latency x searches.
"""

import argparse
import json
import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any

from rltune.rollout.engine import Request, SamplingParams
from rltune.rollout.episode import Slot, play
from rltune.rollout.scripted_engine import ScriptedEngine
from rltune.types import Episode
from rltune_envs.multihop_qa import MultihopQaEnv

SEARCH, ANSWER, END, FIRST_FREE = range(4)
FOUND = json.dumps({"result": [[{"document": {"contents": '"Title"\nText.'}, "score": 1.0}]]})


class Retriever(ThreadingHTTPServer):
    """Answers every query with one passage, and counts how many it serves at a time."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, latency_s: float) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.latency_s = latency_s
        self.lock = threading.Lock()
        self.n_now = self.n_most = self.n_served = 0

    def wait(self) -> None:
        with self.lock:
            self.n_now += 1
            self.n_served += 1
            self.n_most = max(self.n_most, self.n_now)
        time.sleep(self.latency_s)
        with self.lock:
            self.n_now -= 1


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits for an acknowledgement, 40 ms
    server: Retriever

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.server.wait()
        self.send_response(200)
        self.send_header("content-length", str(len(FOUND)))
        self.end_headers()
        self.wfile.write(FOUND.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Renderer:
    """Reads the script's tokens: an action, the episode, the turn, the end."""

    def first(self, system: str, observation: str, prefix: str) -> list[int]:
        return [SEARCH]

    def following(self, observation: str, prefix: str, *, is_ended: bool) -> list[int]:
        return [SEARCH]

    def decode(self, ids: list[int]) -> str:
        action, episode, turn, _ = ids
        # No query is asked twice: answers are kept.
        return f"<search>{episode} {turn}</search>" if action == SEARCH else "<answer>none</answer>"


def serve(latency_s: float, counts: "Connection[Any, Any]") -> None:
    """Serve until told to stop; send the port first, and the counts last."""
    with Retriever(latency_s) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        counts.send(server.server_address[1])
        counts.recv()
        counts.send((server.n_served, server.n_most))


class Serving:
    """A retriever in a process of its own.

    Attributes:
        url: Its address.
        n_served: Searches that it answered; known at the end.
        n_most: The most of them at a time.

    """

    def __init__(self, latency_s: float) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._ours, theirs = spawn.Pipe()
        self._process = spawn.Process(target=serve, args=(latency_s, theirs))
        self._process.start()
        self.url = f"http://127.0.0.1:{self._ours.recv()}/retrieve"
        self.n_served = self.n_most = 0

    def stop(self) -> None:
        """End it, and take its counts."""
        self._ours.send(None)
        self.n_served, self.n_most = self._ours.recv()
        self._process.join()


@contextmanager
def serving(latency_s: float) -> Iterator[Serving]:
    """Serve for the length of the block."""
    server = Serving(latency_s)
    try:
        yield server
    finally:
        server.stop()


def played(url: str, *, episodes: int, searches: int, workers: int) -> list[Episode]:
    def make_env() -> MultihopQaEnv:
        return MultihopQaEnv(
            retriever=url,
            passages=200,
            prompt="compact",
            max_searches=searches,
            max_turns=searches + 1,
        )

    def script(request: Request) -> list[int]:
        n_turns = list(request.prompt_ids).count(END)
        action = SEARCH if n_turns < searches else ANSWER
        return [action, FIRST_FREE + request.conversation, FIRST_FREE + n_turns, END]

    env = make_env()
    return play(
        [Slot(env.task(seed), seed, 0, seed) for seed in range(episodes)],
        make_env=make_env,
        renderer=Renderer(),
        engine=ScriptedEngine(script, end_ids=[END]),
        params=SamplingParams(1.0, 8, 10_000),
        workers=workers,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    parser.add_argument("--episodes", type=int, default=128)
    parser.add_argument("--searches", type=int, default=4, help="Of each episode.")
    args = parser.parse_args()
    latency_s = args.latency_ms / 1000
    bound = latency_s * args.searches
    print(
        f"{args.episodes} episodes, {args.searches} searches of {args.latency_ms:g} ms each: all at"
    )
    print(f"once {bound:.2f} s, one after another {bound * args.episodes:.2f} s at least")
    with serving(0.0) as server:
        played(server.url, episodes=1, searches=1, workers=1)  # makes the world of the questions
    first: list[Episode] | None = None
    for workers in (1, 8, 32, 128):
        with serving(latency_s) as server:
            began = time.monotonic()
            episodes = played(
                server.url, episodes=args.episodes, searches=args.searches, workers=workers
            )
            seconds = time.monotonic() - began
        first = first or episodes
        same = "equal" if episodes == first else "OTHER"
        print(
            f"{workers:4} workers: {seconds:6.2f} s, {server.n_served} searches, at most "
            f"{server.n_most} at a time, {same} episodes"
        )


if __name__ == "__main__":
    main()
