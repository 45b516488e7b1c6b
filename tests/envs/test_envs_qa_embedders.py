"""The client of an embeddings endpoint: order, prefixes, and what it says of a bad answer."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from rltune_envs.errors import RetrieverError
from rltune_envs.multihop_qa.embedders import EndpointEmbedder


@contextmanager
def endpoint(reply):
    """Serve what `reply` makes of a request's body: (status, answer)."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, answer = reply(body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/embeddings"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_vectors_come_in_the_order_of_the_texts():
    asked = []

    def reply(body):
        asked.append(body)
        rows = [{"index": i, "embedding": [i, len(t)]} for i, t in enumerate(body["input"])]
        return 200, {"data": rows[::-1]}

    with endpoint(reply) as url:
        embedder = EndpointEmbedder(f"{url}#e5", prefixes=("query: ", "passage: "))
        vectors = embedder.embed(["a", "bc"], is_query=False)
        embedder.embed(["a"], is_query=True)
        embedder.close()
    np.testing.assert_array_equal(vectors, [[0, 10], [1, 11]])
    assert asked == [
        {"model": "e5", "input": ["passage: a", "passage: bc"]},
        {"model": "e5", "input": ["query: a"]},
    ]


@pytest.mark.parametrize(
    ("status", "answer", "message"),
    [
        (500, {"error": "full"}, r'it answered HTTP 500: {"error": "full"}'),
        (200, {"rows": []}, r"not one of OpenAI's embeddings protocol \(KeyError: 'data'\)"),
        (200, {"data": []}, r"not one of OpenAI's embeddings protocol \(KeyError: 0\)"),
        (200, {"data": [{"index": 0, "embedding": [1, "x"]}]}, r"protocol \(ValueError"),
        (200, {"data": [{"index": 0, "embedding": 3}]}, r"1 texts with numbers of shape \(1,\)"),
        (200, {"data": [{"index": 0, "embedding": [float("nan")]}]}, r"of finite numbers"),
    ],
)
def test_a_bad_answer_is_named(status, answer, message):
    with endpoint(lambda _: (status, answer)) as url:
        embedder = EndpointEmbedder(url)
        with pytest.raises(RetrieverError, match=message):
            embedder.embed(["a"], is_query=True)
        embedder.close()


def test_no_server_is_named():
    embedder = EndpointEmbedder("http://127.0.0.1:9/v1/embeddings")
    with pytest.raises(RetrieverError, match=r"^http://127.0.0.1:9/v1/embeddings: ConnectError"):
        embedder.embed(["a"], is_query=True)
    embedder.close()
