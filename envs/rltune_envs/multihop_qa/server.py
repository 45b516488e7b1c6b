"""A retrieval server that speaks the Search-R1 `/retrieve` protocol, on any ranking retriever.

    POST /retrieve {"queries": [text, ...], "topk": number or null, "return_scores": true or false}
        -> {"result": [[item, ...] for each query]}, best first; an item is
           {"document": document, "score": number} with scores, else the document alone
    GET /health -> {"status": "ok", "passages": number}

A document has `id`, `contents`, `title` and `text`. A query without a match gets an empty list.
Any other request gets `{"error": text}` and a status of 400 or more.
"""

import json
import socket
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, Self

from rltune_envs.errors import RetrieverError
from rltune_envs.files_rows import half_of_json, kind_of
from rltune_envs.multihop_qa.files_corpus import document_from_passage
from rltune_envs.multihop_qa.records import RankingRetriever

DEFAULT_K = 3
MAX_K = 1000
MAX_BODY = 8 * 2**20
_IDLE_S = 30.0
_POLL_S = 0.05


class RequestError(Exception):
    """A request cannot be answered; carries the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status, self.text = status, text


class RetrievalServer(ThreadingTCPServer):
    """Serves one corpus inside a `with` block, a thread per connection.

    Args:
        retriever: What it searches.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.

    Raises:
        OSError: The port is taken, or the host is not an address of this machine.

    """

    allow_reuse_address = True  # also while old connections still wait to close
    daemon_threads = False  # leaving the block lets running answers end
    request_queue_size = 128

    def __init__(
        self, retriever: RankingRetriever, *, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.retriever = retriever
        self._open: set[socket.socket] = set()
        self._loop = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": _POLL_S}, name="retrieval-server"
        )
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        """Return the address for a client."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/retrieve"

    def __enter__(self) -> Self:
        """Serve in a thread, from now on."""
        self._loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let running answers end, then close all connections and the port."""
        self.shutdown()
        self._loop.join()
        for connection in list(self._open):
            with suppress(OSError):  # the other side is gone already
                connection.shutdown(socket.SHUT_RD)
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection; leaving the block ends it."""
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection."""
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report a bug; a client that left is not one."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def answer(retriever: RankingRetriever, body: bytes) -> dict[str, Any]:
    """Return the answer to the body of one `POST /retrieve`.

    Raises:
        RequestError: The body is outside the protocol, or the retriever has no answer (503).

    """
    queries, k, has_scores = _parsed(body)
    try:
        return {"result": [_items(retriever, query, k, has_scores) for query in queries]}
    except RetrieverError as error:
        raise RequestError(503, str(error)) from error


def _items(
    retriever: RankingRetriever, query: str, k: int, has_scores: bool
) -> list[dict[str, Any]]:
    ranked = [
        (document_from_passage(retriever.passages[number], number=number), score)
        for number, score in retriever.rank(query, k=k)
    ]
    if has_scores:
        return [{"document": document, "score": score} for document, score in ranked]
    return [document for document, _ in ranked]


def _parsed(body: bytes) -> tuple[list[str], int, bool]:
    """Return the queries, how many passages each, and whether scores are wanted."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise RequestError(400, f"the body must be a JSON object, it is {kind_of(data)}")
    queries, k, has_scores = data.get("queries"), data.get("topk"), data.get("return_scores", False)
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise RequestError(400, "queries must be a list of texts")
    if half := half_of_json(queries):
        raise RequestError(400, f"queries holds {half}, half of a character")
    if k is not None and (isinstance(k, bool) or not isinstance(k, int) or not 0 <= k <= MAX_K):
        raise RequestError(
            400, f"topk must be null or a whole number up to {MAX_K}; null and 0 mean {DEFAULT_K}"
        )
    if not isinstance(has_scores, bool):
        raise RequestError(400, "return_scores must be true or false")
    return queries, k or DEFAULT_K, has_scores


class _Handler(BaseHTTPRequestHandler):
    server: RetrievalServer
    protocol_version = "HTTP/1.1"  # keeps connections
    timeout = _IDLE_S
    wbufsize = -1  # head and body in one packet
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        if self.path == "/health":
            passages = len(self.server.retriever.passages)
            self._send(200, {"status": "ok", "passages": passages})
        else:
            self._refuse(404)

    def do_POST(self) -> None:
        try:
            body = self._body()
            if self.path != "/retrieve":
                self._refuse(404)
            else:
                self._send(200, answer(self.server.retriever, body))
        except RequestError as error:
            self._send(error.status, {"error": error.text})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that the library refuses in JSON, and close: its body was not read."""
        self.close_connection = True
        self._send(code, {"error": message or self.responses[code][0]})

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length")
        self.close_connection, keeps = True, not self.close_connection  # unless it is read whole
        if length is None:
            raise RequestError(411, "Content-Length is missing")
        if not (length.isascii() and length.isdigit()):
            raise RequestError(400, f"Content-Length {length!r} is not a number of bytes")
        if int(length) > MAX_BODY:
            raise RequestError(413, f"the body has {length} bytes; allowed are {MAX_BODY}")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise RequestError(400, f"the body ended after {len(body)} of {length} bytes")
        self.close_connection = not keeps
        return body

    def _refuse(self, status: int) -> None:
        known = "POST /retrieve and GET /health"
        self._send(status, {"error": f"there is no {self.command} {self.path} here; {known} are"})

    def _send(self, status: int, data: object) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
