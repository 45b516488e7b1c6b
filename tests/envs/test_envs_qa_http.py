"""The client and the server of the `/retrieve` protocol, against each other and byte by byte."""

import http.client
import json
import multiprocessing
import pickle
import socket
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import pytest
from cases import each
from patience import HANG_S

from rltune_envs.multihop_qa.bm25 import Bm25Retriever
from rltune_envs.multihop_qa.http_retriever import HttpRetriever
from rltune_envs.multihop_qa.records import Passage
from rltune_envs.multihop_qa.server import MAX_BODY, MAX_K, RetrievalServer

PASSAGES = (
    Passage("Ulm", "Ulm is a town."),
    Passage("Bonn", "Bonn is a town, a city."),
    Passage("Łódź", "Łódź is a city.\nIn Poland."),
    Passage("Rome", "Rome is a city."),
    Passage("Oslo", "Oslo is a city."),
)
RETRIEVER = Bm25Retriever(PASSAGES)
DOCUMENT = {
    "id": "0",
    "contents": '"Ulm"\nUlm is a town.',
    "title": "Ulm",
    "text": "Ulm is a town.",
}


@pytest.fixture(scope="module")
def server():
    with RetrievalServer(RETRIEVER) as running:
        yield running


@pytest.fixture
def client(server):
    with HttpRetriever(server.url, retries=0) as made:
        yield made


def ask(server, method, path, body=b"", headers=()):
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=HANG_S)
    try:
        connection.request(method, path, body, headers=dict(headers))
        response = connection.getresponse()
        assert response.getheader("Content-Type") == "application/json"
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def retrieve(server, **request):
    return ask(server, "POST", "/retrieve", json.dumps(request))


@pytest.mark.parametrize(
    "query", ["ulm", "city town", "łódź Poland", "nothing-there", "", "a " * 99]
)
@pytest.mark.parametrize("k", [1, 3, 100])
def test_the_client_finds_over_http_what_the_index_finds(client, query, k):
    assert client.search(query, k=k) == RETRIEVER.search(query, k=k)


def test_any_text_can_be_asked(client):
    for query in ('"quotes" \\ </search>', "\x00\n\t", "\ud800 lone", "😀 ulm"):
        assert client.search(query, k=3) == RETRIEVER.search(query, k=3)


def test_one_request_with_scores(server):
    (_, score), = RETRIEVER.rank("ulm", k=3)  # fmt: skip
    assert retrieve(server, queries=["ulm"], topk=3, return_scores=True) == (
        200,
        {"result": [[{"document": DOCUMENT, "score": score}]]},
    )


def test_without_scores_the_documents_stand_alone(server):
    expected = (200, {"result": [[DOCUMENT]]})
    assert retrieve(server, queries=["ulm"], return_scores=False) == expected
    assert retrieve(server, queries=["ulm"]) == expected


def test_a_batch_has_one_list_per_query_in_order(server):
    status, data = retrieve(server, queries=["oslo", "unheard", "ulm", "oslo"], topk=2)
    titles = [[document["title"] for document in found] for found in data["result"]]
    assert (status, titles) == (200, [["Oslo"], [], ["Ulm"], ["Oslo"]])
    assert retrieve(server, queries=[]) == (200, {"result": []})


@pytest.mark.parametrize(
    ("topk", "n"), [({}, 3), ({"topk": None}, 3), ({"topk": 0}, 3), ({"topk": 1}, 1),
                    ({"topk": MAX_K}, 4)]
)  # fmt: skip
def test_topk(server, topk, n):
    _, data = retrieve(server, queries=["city"], **topk)
    assert len(data["result"][0]) == n


def test_health(server):
    assert ask(server, "GET", "/health") == (200, {"status": "ok", "passages": 5})


TOPK = "topk must be null or a whole number up to 1000; null and 0 mean 3"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "the body is not JSON: "),
        (b"{", "the body is not JSON: "),
        (b"\xff", "the body is not JSON: "),
        (b"[" * 100_000, "the body is not JSON: "),
        (b'["ulm"]', "the body must be a JSON object, it is a list"),
        (b"{}", "queries must be a list of texts"),
        (b'{"queries": "ulm"}', "queries must be a list of texts"),
        (b'{"queries": ["ulm", 3]}', "queries must be a list of texts"),
        (b'{"queries": [], "topk": -1}', TOPK),
        (b'{"queries": [], "topk": true}', TOPK),
        (b'{"queries": [], "topk": "3"}', TOPK),
        (b'{"queries": [], "topk": 1001}', TOPK),
        (b'{"queries": [], "return_scores": 1}', "return_scores must be true or false"),
    ],
)
def test_a_bad_request_is_400_and_says_why(server, body, error):
    status, data = ask(server, "POST", "/retrieve", body)
    assert status == 400
    assert data.keys() == {"error"}
    assert data["error"].startswith(error)


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("GET", "/", 404, "there is no GET / here; POST /retrieve and GET /health are"),
        ("GET", "/retrieve", 404,
         "there is no GET /retrieve here; POST /retrieve and GET /health are"),
        ("POST", "/search", 404,
         "there is no POST /search here; POST /retrieve and GET /health are"),
        ("DELETE", "/retrieve", 501, "Unsupported method ('DELETE')"),
    ],
)  # fmt: skip
def test_elsewhere_is_an_error_as_json(server, method, path, status, error):
    assert ask(server, method, path, b"{}") == (status, {"error": error})


def raw(server, request):
    """Send bytes as they are, and return all that comes back until the server closes."""
    with socket.create_connection(server.server_address, timeout=HANG_S) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize(
    ("length", "status", "error"),
    [
        (b"", 411, "Content-Length is missing"),
        (b"Content-Length: x\r\n", 400, "Content-Length 'x' is not a number of bytes"),
        (b"Content-Length: -1\r\n", 400, "Content-Length '-1' is not a number of bytes"),
        (b"Content-Length: %d\r\n" % (MAX_BODY + 1), 413,
         f"the body has {MAX_BODY + 1} bytes; allowed are {MAX_BODY}"),
        (b"Content-Length: 9\r\n", 400, "the body ended after 2 of 9 bytes"),
    ],
)  # fmt: skip
def test_a_body_that_cannot_be_read_closes_the_connection(server, length, status, error):
    head, _, body = raw(server, b"POST /retrieve HTTP/1.1\r\n" + length + b"\r\n{}").partition(
        b"\r\n\r\n"
    )
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"Connection: close" in head
    assert json.loads(body) == {"error": error}


def test_one_connection_serves_many_requests(server):
    one = b'POST /retrieve HTTP/1.1\r\nContent-Length: 19\r\n\r\n{"queries":["ulm"]}'
    bad = b"POST /x HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
    assert raw(server, one + bad + one).count(b'{"result": [[{"id": "0"') == 2


def test_eight_threads_share_one_client(client):
    queries = [passage.title for passage in PASSAGES] * 40
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda query: client.search(query, k=1)[0].title, queries))
    assert found == queries


def test_connections_are_used_again(client, monkeypatch):
    made, new = [], httpx.Client
    monkeypatch.setattr(httpx, "Client", lambda **keys: made.append(new(**keys)) or made[-1])
    for _ in range(3):
        client.search("ulm", k=1)
    assert len(made) == 1


def test_a_pickled_client_works(client):
    client.search("ulm", k=1)  # has a connection, which must stay behind
    with pickle.loads(pickle.dumps(client)) as copy:
        assert copy.search("ulm", k=1) == client.search("ulm", k=1)


def _ask_in_child(retriever, query, pipe):
    try:
        pipe.send([retriever.search(query, k=1)[0].title for _ in range(20)])
    finally:
        retriever.close()


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_processes_do_not_share_connections(client, method):
    """A forked child that used the parent's connection would mix up their answers."""
    client.search("rome", k=1)
    context = multiprocessing.get_context(method)
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_ask_in_child, args=(client, "ulm", sender))
    child.start()
    found = {client.search("rome", k=1)[0].title for _ in range(20)}
    assert receiver.recv() == ["Ulm"] * 20
    child.join()
    assert (found, child.exitcode) == ({"Rome"}, 0)


def test_a_closed_client_opens_again(client):
    client.search("ulm", k=1)
    client.close()
    client.close()
    assert client.search("ulm", k=1) == (PASSAGES[0],)


@pytest.mark.parametrize(
    ("url", "full"),
    [
        ("http://h:1", "http://h:1/retrieve"),
        ("http://h:1/", "http://h:1/retrieve"),
        ("http://h:1/retrieve/", "http://h:1/retrieve"),
        ("https://h/a/find", "https://h/a/find"),
    ],
)
def test_an_address_without_a_path_gets_the_usual_one(url, full):
    assert HttpRetriever(url).url == full


@each("url", ["", "bm25", "127.0.0.1:8000", "ftp://h", "http://", "http://h:x"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(
        ValueError, match=r"^retriever: .* is not an address; write it as http://127"
    ):
        HttpRetriever(url)


@pytest.mark.parametrize("k", [0, -1])
def test_k_below_one_is_refused(client, k):
    with pytest.raises(ValueError, match=rf"^k: {k} is below 1; ask for at least one passage$"):
        client.search("ulm", k=k)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout_s": 0}, "timeout_s: 0 must be above 0 seconds"),
        ({"timeout_s": float("nan")}, "timeout_s: nan must be above 0 seconds"),
        ({"retries": -1}, "retries: -1 must be 0 or more"),
        ({"backoff_s": -1}, "backoff_s: -1 must be 0 seconds or more"),
    ],
)
def test_numbers_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        HttpRetriever("http://h", **options)
