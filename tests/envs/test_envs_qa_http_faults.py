"""Every way in which a retriever can fail is one RetrieverError of one line."""

import json
import multiprocessing
import socket
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cases import each
from patience import HANG_S

from rltune_envs.errors import RetrieverError
from rltune_envs.multihop_qa.bm25 import Bm25Retriever
from rltune_envs.multihop_qa.http_retriever import HttpRetriever
from rltune_envs.multihop_qa.records import Passage
from rltune_envs.multihop_qa.server import RetrievalServer

ULM = Passage("Ulm", "A town.")
GOOD = {"result": [[{"document": {"id": "0", "contents": '"Ulm"\nA town.'}, "score": 1.5}]]}
CHECK = "check that this address serves the Search-R1 /retrieve protocol"
START = "start it (`rltune serve-retriever` is one), or give its address"


def as_bytes(answer):
    return answer if isinstance(answer, bytes) else json.dumps(answer).encode()


@contextmanager
def scripted(*answers, drip_s=0.0):
    """A server that gives the (status, body) answers in turn, the last one for ever."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status, answer = answers[min(len(asked), len(answers)) - 1]
            body = as_bytes(answer)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            for byte in [body] if not drip_s else [body[i : i + 1] for i in range(len(body))]:
                try:
                    self.wfile.write(byte)
                except ConnectionError:
                    return
                time.sleep(drip_s)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/retrieve", asked
        finally:
            server.shutdown()
            thread.join()


def failure(url, **options):
    options = {"timeout_s": 5.0, "retries": 2, "backoff_s": 0.01, **options}
    with HttpRetriever(url, **options) as client, pytest.raises(RetrieverError) as caught:
        client.search("ulm", k=3)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"{url}: ")
    return text.removeprefix(f"{url}: ")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return unused.getsockname()[1]


def test_the_request_is_that_of_the_protocol():
    with scripted((200, GOOD)) as (url, asked), HttpRetriever(url) as client:
        assert client.search("who?", k=3) == (ULM,)
    assert asked == [{"queries": ["who?"], "topk": 3, "return_scores": True}]


@pytest.mark.parametrize(
    "result",
    [
        {"document": {"title": "Ulm", "text": "A town."}, "score": 1},
        {"document": {"id": "0", "contents": '"Ulm"\nA town.'}},
        {"id": "0", "contents": '"Ulm"\nA town.'},  # a server that keeps its scores
        {"title": "Ulm", "text": "A town."},
    ],
)
def test_documents_of_all_kinds_are_read(result):
    with scripted((200, {"result": [[result]]})) as (url, _), HttpRetriever(url) as client:
        assert client.search("ulm", k=1) == (ULM,)


def test_no_result_and_too_many():
    three = [{"title": str(i), "text": "x"} for i in range(3)]
    answers = (200, {"result": [[]]}), (200, {"result": [three]})
    with scripted(*answers) as (url, _), HttpRetriever(url) as client:
        assert client.search("ulm", k=2) == ()
        assert [one.title for one in client.search("ulm", k=2)] == ["0", "1"]


def test_nobody_listens():
    text = failure(f"http://127.0.0.1:{free_port()}/retrieve")
    assert text == f"ConnectError: [Errno 111] Connection refused (3 tries); {START}"


def test_an_address_that_the_library_refuses():
    assert failure("http://ho\x7fst/retrieve").endswith(f" (try 1); {CHECK}")


def test_it_takes_the_connection_and_never_answers():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = failure(
            f"http://127.0.0.1:{silent.getsockname()[1]}/retrieve", timeout_s=0.1, retries=1
        )
    assert text == f"no whole answer within 0.1 s (2 tries); {START}"


def test_an_answer_that_drips_is_bounded_as_a_whole():
    """Each byte comes in time; 75 of them, 0.05 s apart, do not."""
    with scripted((200, GOOD), drip_s=0.05) as (url, _):
        assert "no whole answer within 0.2 s (1 try)" in failure(url, timeout_s=0.2, retries=0)


def test_it_hangs_up_without_an_answer():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up():
            for _ in range(2):
                listener.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/retrieve"
        text = failure(url, retries=1)
        thread.join()
    assert text.endswith(f" (2 tries); {START}")


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_failure_that_passes_is_no_failure(status):
    busy = (status, {"error": "busy"})
    with (
        scripted(busy, busy, (200, GOOD)) as (url, asked),
        HttpRetriever(url, retries=2, backoff_s=0.01) as client,
    ):
        assert client.search("ulm", k=3) == (ULM,)
    assert len(asked) == 3


def test_a_failure_that_does_not_pass_counts_its_tries():
    with scripted((500, {"error": "no\nindex"})) as (url, asked):
        assert failure(url) == f"it answered HTTP 500: no index (3 tries); {START}"
    assert len(asked) == 3


WRONG = [
    (404, b"<html>no\n  such page</html>", "it answered HTTP 404: <html>no such page</html>"),
    (400, {"error": "topk is bad"}, "it answered HTTP 400: topk is bad"),
    (307, b"", "it answered HTTP 307"),
    (200, b"<html>hello</html>", "its answer is not JSON: <html>hello</html>"),
    (200, b"", "its answer is not JSON"),
    (200, b'{"result": [[{"title": "T", "text": "\\ud83d"}]]}', "its answer holds U+D83D, "
     "half of a character"),
    (200, b"\xff\x00", "its answer is not JSON: \ufffd\x00"),
    (200, [1], "its answer has no list under 'result': [1]"),
    (200, {"results": []}, "its answer has no list under 'result': {\"results\": []}"),
    (200, {"error": "x" * 999}, f"its answer has no list under 'result': {'x' * 200}"),
    (200, {"result": []}, "it answered 1 query with 0 results: {\"result\": []}"),
    (200, {"result": [[], []]}, "it answered 1 query with 2 results: {\"result\": [[], []]}"),
    (200, {"result": ["Ulm"]}, "its result is not a list of documents: {\"result\": [\"Ulm\"]}"),
    (200, {"result": [["Ulm"]]},
     "a result must be an object with a document, it is text"),
    (200, {"result": [[{"document": None}]]},
     "a result must be an object with a document, it is an object"),
    (200, {"result": [[{"document": {"id": "0"}}]]},
     "a document needs contents, or title and text, as texts; found id"),
    (200, {"result": [[{"document": {"i\nd": "0"}}]]},
     "a document needs contents, or title and text, as texts; found i d"),
    (200, {"result": [[{"document": {"contents": ""}}]]}, "contents is empty"),
]  # fmt: skip


@each(("status", "answer", "cause"), WRONG)
def test_another_protocol_is_not_asked_twice(status, answer, cause):
    with scripted((status, answer)) as (url, asked):
        assert failure(url) == f"{' '.join(cause.split())} (try 1); {CHECK}"
    assert len(asked) == 1


def test_an_endless_answer_is_cut_off(monkeypatch):
    monkeypatch.setattr("rltune_envs.multihop_qa.http_retriever._MAX_ANSWER", 1000)
    with scripted((200, b"[" + b" " * 5000)) as (url, _):
        assert failure(url) == f"it answered more than 1000 bytes (try 1); {CHECK}"


def waits(monkeypatch, query, **options):
    slept = []
    monkeypatch.setattr("rltune_envs.multihop_qa.http_retriever.time.sleep", slept.append)
    client = HttpRetriever("http://127.0.0.1:9/retrieve", **options)
    with client, pytest.raises(RetrieverError):
        client.search(query, k=3)
    return slept


def test_waits_double_and_are_drawn_from_a_key(monkeypatch):
    first = waits(monkeypatch, "ulm", retries=4, backoff_s=0.5)
    assert len(first) == 4
    for number, wait in enumerate(first):
        assert 0.25 * 2**number <= wait <= 0.5 * 2**number
    assert waits(monkeypatch, "ulm", retries=4, backoff_s=0.5) == first
    assert waits(monkeypatch, "bonn", retries=4, backoff_s=0.5) != first
    assert len({wait / 2**number for number, wait in enumerate(first)}) == 4
    assert waits(monkeypatch, "ulm", retries=0) == []


def _serve(port):
    with RetrievalServer(Bm25Retriever([ULM]), port=port):
        threading.Event().wait()


def _start(port):
    child = multiprocessing.get_context("fork").Process(target=_serve, args=(port,), daemon=True)
    child.start()
    return child


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_server_killed_and_started_again():
    port = free_port()
    child = _start(port)
    with HttpRetriever(f"http://127.0.0.1:{port}", retries=8, backoff_s=0.1) as client:
        assert client.search("ulm", k=1) == (ULM,)  # waits until it is up
        child.kill()
        child.join()
        impatient = HttpRetriever(client.url, retries=0)
        with impatient, pytest.raises(RetrieverError, match="refused"):
            impatient.search("ulm", k=1)
        again = _start(port)
        assert client.search("ulm", k=1) == (ULM,)  # its old connection is dead
        again.kill()
        again.join()


def test_leaving_the_block_stops_everything(monkeypatch):
    monkeypatch.setattr("rltune_envs.multihop_qa.server._Handler.timeout", HANG_S)  # when idle
    with RetrievalServer(Bm25Retriever([ULM])) as server:
        url = server.url
        client = HttpRetriever(url, retries=0)
        assert client.search("ulm", k=1) == (ULM,)
        before, start = threading.active_count(), time.monotonic()
    assert time.monotonic() - start < HANG_S  # nothing waits until the connection is idle
    assert threading.active_count() < before  # its loop, and the thread of the open connection
    with client, pytest.raises(RetrieverError, match="refused"):
        client.search("ulm", k=1)


def test_a_taken_port_is_an_error_of_the_system():
    with RetrievalServer(Bm25Retriever([ULM])) as server:
        port = server.server_address[1]
        with pytest.raises(OSError, match="Address already in use"):
            RetrievalServer(Bm25Retriever([ULM]), port=port)
