"""The server's HTTP: one thread per connection, on the loopback interface by default."""

import json
import re
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Self

from rltune.remote.server.jobs import Answer
from rltune.remote.server.service import Service, UnknownError
from rltune.remote.server.wire import PROTOBUF, RefusedError

_ROOT = "/api/v1/"
_EXTERNAL = re.compile(r"training_runs/([^/]+)/checkpoints/external_weights/([^/]+)(?:/(.+))?")


def _version() -> str:
    try:
        return version("rltune")
    except PackageNotFoundError:
        return "source"


class TinkerServer:
    """Serves until it is closed.

    Args:
        service: Answers the calls; it is closed with the server.
        host: Address to listen on.
        port: Port; 0 takes a free one.

    Raises:
        OSError: It cannot listen there.

    """

    def __init__(self, service: Service, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._service = service
        self._server = ThreadingHTTPServer((host, port), partial(_Handler, service))
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        """Start to serve."""
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop to serve; what runs is finished."""
        self._server.shutdown()
        self._server.server_close()
        self._service.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits for an acknowledgement, 40 ms

    def __init__(self, service: Service, *args: Any) -> None:
        self._service = service
        super().__init__(*args)

    def do_GET(self) -> None:
        """Answer what is no call."""
        name = self.path.removeprefix(_ROOT)
        if name == "healthz":
            self._answer(200, {"status": "ok", "server": f"rltune {_version()}"})
        elif name == "get_server_capabilities":
            self._answer(200, self._service.capabilities())
        elif name.startswith("samplers/"):
            self._try(partial(self._service.sampler, name.removeprefix("samplers/")))
        elif match := _EXTERNAL.fullmatch(name):
            self._try(partial(self._external, *match.groups()))
        else:
            self._answer(404, {"error": f"there is no {self.path!r} here"})

    def _external(self, model: str, name: str, what: str | None) -> Answer:
        external = self._service.external
        if what == "external_weights_urls":
            root = f"http://{self.headers['Host']}{_ROOT}"
            return external.addresses(model, name, root)
        return external.read(model, name, (what or "").removeprefix("files/"))

    def do_DELETE(self) -> None:
        """Delete an adapter that was written for other programs."""
        if match := _EXTERNAL.fullmatch(self.path.removeprefix(_ROOT)):
            self._try(partial(self._service.external.delete, *match.groups()[:2]))
        else:
            self._answer(404, {"error": f"{self.path!r} cannot be deleted here"})

    def do_POST(self) -> None:
        """Answer a call."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        name = self.path.removeprefix(_ROOT)
        if name == "forward_backward":
            self._try(partial(self._service.forward_backward, body))
        elif re.fullmatch("sessions/[^/]+/finish", name):
            self._answer(200, {})
        elif name in self._service.calls:
            self._try(lambda: self._service.calls[name](json.loads(body or b"{}")))
        else:
            self._answer(404, {"error": f"there is no call {name!r} here"})

    def _try(self, call: Any) -> None:
        if self._service.is_closed:  # a connection that outlived the server
            self.close_connection = True
            return
        try:
            answer = call()
        except UnknownError as error:
            self._answer(404, {"error": f"unknown: {error}"})
        except (RefusedError, KeyError, ValueError) as error:
            self._answer(422, {"error": str(error)})
        else:
            self._answer(200, answer)

    def _answer(self, status: int, answer: Answer) -> None:
        is_json = isinstance(answer, dict)
        body = json.dumps(answer).encode() if isinstance(answer, dict) else answer
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if is_json else PROTOBUF)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: a line per request would hide what matters."""
