"""A small deterministic server of the OpenAI chat-completions protocol, to test the judge with.

`python -m rltune.judge.scripted_server --port 0 --faults 429*2,garbage` prints its address and
serves until it is stopped. It reads the trajectory out of the judge's message and calls a step GOOD
when its observation is new in the episode; a step without an observation, when the episode
succeeded. Each request takes the next fault of the list; after the last one all is well.
"""

import argparse
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Flags = Sequence[bool]


def as_json(flags: Flags, *, first: int = 0) -> str:
    """Return a reply of the asked form, the steps numbered from `first`."""
    verdicts = [
        {"step": number, "verdict": "GOOD" if flag else "BAD"}
        for number, flag in enumerate(flags, first)
    ]
    return json.dumps({"verdicts": verdicts})


REPLIES: dict[str, Callable[[Flags], str]] = {
    "ok": as_json,
    "one_based": lambda flags: as_json(flags, first=1),
    "fenced": lambda flags: f"Here you are:\n```json\n{as_json(flags)}\n```",
    "bold": lambda flags: as_json(flags).replace("GOOD", "**GOOD**").replace("BAD", "**BAD**"),
    "lines": lambda flags: "\n".join(
        f"Step {number} Analysis: not a good idea, or bad.\n"
        f"**Step {number} Judgment: {'GOOD' if flag else 'BAD'}**"
        for number, flag in enumerate(flags)
    ),
    "partial": lambda flags: as_json(flags[:-1]),  # the last step is missing
    "words": lambda _: "The steps were good, then bad; all in all GOOD.",
    "empty": lambda _: "",
}
"""Chat completions by the name of a fault: readable ones first, then unreadable ones."""

STATUSES = {
    "400": 400, "401": 401, "404": 404, "429": 429, "500": 500, "503": 503, "429_wait": 429,
}  # fmt: skip
"""HTTP errors by the name of a fault; `429_wait` asks to wait an hour, `401` quotes the key."""

BREAKS = ("hang", "drip", "drop", "garbage", "no_usage", "cut")
"""What else may go wrong: no answer, a slow one, a closed connection, no JSON, no token count, and
a reply that ends at its limit."""

FAULTS = (*REPLIES, *STATUSES, *BREAKS)


def parse_faults(text: str) -> list[str]:
    """Return the names of a list such as `429*2,ok,hang`.

    Raises:
        ValueError: A name is unknown, or a count is not a number.

    """
    names: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, count = part.partition("*")
        if name not in FAULTS or (count and not count.isdecimal()):
            raise ValueError(
                f"--faults: {part!r} is not a fault. Choose from {', '.join(FAULTS)}; "
                "429*3 is three times 429."
            )
        names += [name] * int(count or 1)
    return names


def verdicts_of(messages: Sequence[Any]) -> list[bool]:
    """Return the flag of each step of the trajectory in the first user message.

    Raises:
        LookupError, TypeError, ValueError: There is none.

    """
    user = next((one for one in messages if one["role"] == "user"), None)
    if user is None:
        raise LookupError("there is no user message")
    shown = json.loads(user["content"])
    seen: set[str] = set()
    flags = []
    for step in shown["steps"]:
        text = step["observation"]
        flags.append(text not in seen if text else bool(shown["succeeded"]))
        seen.add(text)
    return flags


class ScriptedServer(ThreadingHTTPServer):
    """The server; `url` is the `base_url` of a client.

    Args:
        port: Port, 0 takes a free one.
        faults: What the first requests meet, in the order in which they arrive.
        delay_s: Seconds that an answer takes.
        key: The key that a client must send; None takes any.
        replies: What is answered whatever is asked, one after the other, the last one again; empty:
            verdicts.

    """

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        *,
        port: int = 0,
        faults: Sequence[str] = (),
        delay_s: float = 0.0,
        key: str | None = None,
        replies: Sequence[str] = (),
    ) -> None:
        self.faults = list(faults)
        self.replies = list(replies)
        self.asked: list[Any] = []
        self.delay_s = delay_s
        self.key = key
        self.n_requests = 0
        self.in_flight = 0
        self.max_in_flight = 0
        self.arrivals_s: list[float] = []
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        super().__init__(("127.0.0.1", port), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    def next_fault(self) -> str:
        """Count a request and return what it meets."""
        with self.lock:
            fault = self.faults[self.n_requests] if self.n_requests < len(self.faults) else "ok"
            self.n_requests += 1
            self.in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self.in_flight)
            self.arrivals_s.append(time.monotonic())
            return fault

    def reply_to(self, fault: str, messages: Sequence[Any]) -> str:
        """Return the text of an answer: the next of `replies`, else verdicts."""
        with self.lock:
            self.asked.append(messages)
            if self.replies:
                return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return REPLIES.get(fault, as_json)(verdicts_of(messages))

    def done(self) -> None:
        """Count a request that is over."""
        with self.lock:
            self.in_flight -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that hung up."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits for an acknowledgement, 40 ms
    server: ScriptedServer

    def do_GET(self) -> None:
        if self.path != "/stats":
            self._send(404, {"error": {"message": f"no such page: {self.path}"}})
            return
        server = self.server
        with server.lock:
            stats = {
                "requests": server.n_requests,
                "max_in_flight": server.max_in_flight,
                "arrivals_s": server.arrivals_s,
            }
        self._send(200, stats)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/v1/chat/completions":
            self._send(404, {"error": {"message": f"no such page: {self.path}"}})
            return
        fault = self.server.next_fault()
        try:
            self.server.stopping.wait(self.server.delay_s)
            self._answer(fault, body)
        finally:
            self.server.done()

    def _answer(self, fault: str, body: bytes) -> None:
        sent = self.headers.get("Authorization", "")
        is_stranger = self.server.key is not None and sent != f"Bearer {self.server.key}"
        if fault in STATUSES or is_stranger:
            status = 401 if is_stranger else STATUSES[fault]
            headers = {"Retry-After": "3600"} if fault == "429_wait" else {}
            self._send(status, {"error": {"message": f"scripted {status} for {sent}"}}, headers)
            return
        if fault == "hang":
            self._wait_until_gone()
        if fault in ("hang", "drop"):
            self.close_connection = True
            return
        if fault == "garbage":
            self._send(200, "<html>welcome to the proxy</html>")
            return
        try:
            asked = json.loads(body)
            text = self.server.reply_to(fault, asked["messages"])
        except (LookupError, TypeError, ValueError) as error:
            self._send(400, {"error": {"message": f"no trajectory in the messages: {error}"}})
            return
        completion = _completion(asked, text[: len(text) // 2] if fault == "cut" else text)
        if fault == "cut":
            completion["choices"][0]["finish_reason"] = "length"
        if fault == "no_usage":
            del completion["usage"]
        self._send(200, completion, drip_s=0.05 if fault == "drip" else 0.0)

    def _wait_until_gone(self) -> None:
        """Return when the client has hung up, or the server stops."""
        while not self.server.stopping.wait(0.02):
            is_readable = select.select([self.connection], [], [], 0)[0]
            if is_readable and not self.connection.recv(1, socket.MSG_PEEK):
                return

    def _send(
        self,
        status: int,
        answer: Any,
        headers: dict[str, str] | None = None,
        *,
        drip_s: float = 0.0,
    ) -> None:
        """Send an answer, byte by byte where it drips."""
        content = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(status)
        kind = "text/html" if isinstance(answer, str) else "application/json"
        for name, value in {"Content-Type": kind, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if not drip_s:
            self.wfile.write(content)
            return
        for byte in content:
            self.wfile.write(bytes([byte]))
            self.server.stopping.wait(drip_s)

    def log_message(self, *_: Any) -> None:
        """Write no access log."""


def _completion(asked: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the completion of a request; a word is a token."""
    prompt = sum(len(message["content"].split()) for message in asked["messages"])
    reply = len(text.split())
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": asked.get("model", "scripted"),
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": reply,
            "total_tokens": prompt + reply,
        },
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or SIGINT; print the address of the service."""
    parser = argparse.ArgumentParser(prog="python -m rltune.judge.scripted_server")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--faults", default="", help=f"of {', '.join(FAULTS)}; 429*3 is 3 times")
    parser.add_argument("--delay-s", type=float, default=0.0, help="seconds that an answer takes")
    parser.add_argument("--key-env", help="variable with the key that a client must send")
    given = parser.parse_args(arguments)
    try:
        faults = parse_faults(given.faults)
    except ValueError as error:
        parser.error(str(error))
    key = os.environ.get(given.key_env, "") if given.key_env else None
    with ScriptedServer(port=given.port, faults=faults, delay_s=given.delay_s, key=key) as server:

        def stop(*_: object) -> None:
            server.stopping.set()
            threading.Thread(target=server.shutdown).start()

        for one in (signal.SIGTERM, signal.SIGINT):
            signal.signal(one, stop)
        print(server.url, flush=True)
        server.serve_forever(poll_interval=0.02)


if __name__ == "__main__":
    main()
