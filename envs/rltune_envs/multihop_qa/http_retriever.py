"""A client of the Search-R1 `/retrieve` protocol, for any retriever that serves it.

`POST {"queries": [text], "topk": k, "return_scores": true}` is answered by
`{"result": [[{"document": {...}, "score": number}, ...]]}`, one list per query, best first.
"""

import json
import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from rltune_envs.errors import RetrieverError
from rltune_envs.files_rows import RowError, half_of_json, kind_of
from rltune_envs.multihop_qa.files_corpus import passage_from_document
from rltune_envs.multihop_qa.records import Passage
from rltune_envs.streams import stream

if TYPE_CHECKING:
    import ssl

    import httpx

_MAX_ANSWER = 16 * 2**20
_SHOWN = 200
_CHECK = "check that this address serves the Search-R1 /retrieve protocol"


class _Retry(Exception):
    """A failure that may pass: no connection, a time limit, status 429 or 5xx."""


class _Useless(Exception):
    """A failure that another try would repeat: an answer outside the protocol."""


class HttpRetriever:
    """Asks a retrieval server.

    Threads may share it, and it can be pickled: as many connections are open as searches were ever
    made at a time. Every process opens its own, also after a fork, and closes them with this
    object, or when the process ends. Proxies set in the environment are not used: a retriever is
    close by.

    Args:
        url: Address of the server; `/retrieve` is added where it has no path.
        timeout_s: Seconds until a try is given up, from connecting to the last byte.
        retries: Further tries after a failure that may pass.
        backoff_s: Longest wait before the second try, doubled with each. The wait is drawn from its
            upper half, by the request and the number of the try.

    Raises:
        ValueError: The address is not `http://` or `https://`, or a number is out of its range.

    """

    def __init__(
        self, url: str, *, timeout_s: float = 10.0, retries: int = 3, backoff_s: float = 0.25
    ) -> None:
        self.url = _endpoint(url)
        if not timeout_s > 0:
            raise ValueError(f"timeout_s: {timeout_s!r} must be above 0 seconds")
        if retries < 0:
            raise ValueError(f"retries: {retries!r} must be 0 or more")
        if not backoff_s >= 0:
            raise ValueError(f"backoff_s: {backoff_s!r} must be 0 seconds or more")
        self._timeout_s = timeout_s
        self._retries = retries
        self._backoff_s = backoff_s
        self._hold_none()

    def _hold_none(self) -> None:
        """Start without connections; later ones close when nothing needs them any more."""
        # Those that are idle, by process: a fork must not share sockets.
        self._clients: dict[int, list[httpx.Client]] = {}
        weakref.finalize(self, _close_own, self._clients)

    def __getstate__(self) -> dict[str, object]:
        """Leave out the connections."""
        return {key: value for key, value in self.__dict__.items() if key != "_clients"}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Take over the settings."""
        self.__dict__.update(state)
        self._hold_none()

    def __enter__(self) -> Self:
        """Return itself; its connections close at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close this process's connections; a later search opens new ones."""
        _close_own(self._clients)

    def search(self, query: str, *, k: int) -> tuple[Passage, ...]:
        """Return at most `k` passages, best first; a query without a match returns none.

        Raises:
            ValueError: `k` is below 1.
            RetrieverError: There is no answer, or it is outside the protocol. The message is one
                line.

        """
        if k < 1:
            raise ValueError(f"k: {k} is below 1; ask for at least one passage")
        request = {"queries": [_whole(query)], "topk": k, "return_scores": True}
        body = json.dumps(request).encode()
        tries = self._retries + 1
        for number in range(1, tries + 1):
            try:
                return _passages(self._ask(body))[:k]
            except _Retry as failure:
                cause = failure
            except (_Useless, RowError) as error:
                raise self._error(f"{error} (try {number})", _CHECK) from error
            if number < tries:
                time.sleep(self._wait(body, number))
        raise self._error(
            f"{cause} ({tries} {'try' if tries == 1 else 'tries'})",
            "start it (`rltune serve-retriever` is one), or give its address",
        ) from cause

    def _ask(self, body: bytes) -> bytes:
        """Send one request and return the whole answer.

        Raises:
            _Retry: Another try may succeed.
            _Useless: It will not.

        """
        import httpx

        deadline = time.monotonic() + self._timeout_s
        answer = bytearray()
        try:
            with self._client() as own, own.stream("POST", self.url, content=body) as response:
                for part in response.iter_bytes():
                    answer += part
                    if time.monotonic() > deadline:  # httpx limits the gap between parts
                        raise _Retry(self._too_slow())
                    if len(answer) > _MAX_ANSWER:
                        raise _Useless(f"it answered more than {_MAX_ANSWER} bytes")
        except httpx.TimeoutException as error:
            raise _Retry(self._too_slow()) from error
        except httpx.InvalidURL as error:
            raise _Useless(f"not an address: {error}") from error
        except httpx.RequestError as error:
            raise _Retry(f"{type(error).__name__}: {error}") from error
        status = response.status_code
        if status == 429 or status >= 500:
            raise _Retry(f"it answered HTTP {status}{_excerpt(answer)}")
        if status != 200:
            raise _Useless(f"it answered HTTP {status}{_excerpt(answer)}")
        return bytes(answer)

    @contextmanager
    def _client(self) -> "Iterator[httpx.Client]":
        """Lend a client to one thread: one that many share spends its time on finding a socket."""
        import httpx

        try:
            client = self._idle().pop()
        except IndexError:
            client = httpx.Client(
                timeout=self._timeout_s,
                trust_env=False,
                verify=_certificates() if self.url.startswith("https:") else False,
                headers={"content-type": "application/json", "accept": "application/json"},
            )
        try:
            yield client
        finally:
            self._idle().append(client)

    def _idle(self) -> "list[httpx.Client]":
        """Return this process's idle clients."""
        return self._clients.setdefault(os.getpid(), [])

    def _wait(self, body: bytes, number: int) -> float:
        """Return the seconds to wait after a try: half of them fixed, half drawn."""
        rng = stream(f"rltune/http_retriever/{self.url}/{number}/{body.decode()}")
        return self._backoff_s * 2.0 ** (number - 1) * rng.uniform(0.5, 1.0)

    def _too_slow(self) -> str:
        return f"no whole answer within {self._timeout_s:g} s"

    def _error(self, cause: str, action: str) -> RetrieverError:
        return RetrieverError(f"{self.url}: {' '.join(cause.split())}; {action}")


def _close_own(clients: "dict[int, list[httpx.Client]]") -> None:
    """Close the clients of this process, not those of a process that it was forked from."""
    for client in clients.pop(os.getpid(), []):
        client.close()


@cache
def _certificates() -> "ssl.SSLContext":
    """Return the usual certificates, which take long to read."""
    import httpx

    return httpx.create_ssl_context()


def _whole(text: str) -> str:
    """Return a text with U+FFFD for each half of a character, which servers refuse."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _endpoint(url: str) -> str:
    """Return an address with a path."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # raises where it is not a number
    except ValueError:
        is_address = False
    if not is_address:
        raise ValueError(
            f"retriever: {url!r} is not an address; write it as http://127.0.0.1:8000/retrieve"
        )
    return parts._replace(path=parts.path.rstrip("/") or "/retrieve").geturl()


def _passages(answer: bytes) -> tuple[Passage, ...]:
    """Return the passages of an answer to one query.

    Raises:
        _Useless: It is not of the protocol.
        RowError: One of its documents cannot be used.

    """
    try:
        data = json.loads(answer)
    except (ValueError, RecursionError):
        raise _Useless(f"its answer is not JSON{_excerpt(answer)}") from None
    if b"\\ud" in answer.lower() and (half := half_of_json(data)):
        raise _Useless(f"its answer holds {half}, half of a character")
    results = data.get("result") if isinstance(data, dict) else None
    if not isinstance(results, list):
        raise _Useless(f"its answer has no list under 'result'{_excerpt(answer)}")
    if len(results) != 1:
        raise _Useless(f"it answered 1 query with {len(results)} results{_excerpt(answer)}")
    if not isinstance(results[0], list):
        raise _Useless(f"its result is not a list of documents{_excerpt(answer)}")
    return tuple(_passage(item) for item in results[0])


def _passage(item: object) -> Passage:
    """Return the passage of one result: a document, or one beside its score."""
    document = item.get("document", item) if isinstance(item, dict) else item
    if not isinstance(document, dict):
        raise _Useless(f"a result must be an object with a document, it is {kind_of(item)}")
    return passage_from_document(document)


def _excerpt(answer: bytes | bytearray) -> str:
    """Return the start of an answer for a message; its `error` where it has one."""
    text = bytes(answer[: 10 * _SHOWN]).decode("utf-8", errors="replace")
    with suppress(ValueError, RecursionError, KeyError, TypeError):
        text = json.loads(answer)["error"]
    text = " ".join(str(text).split())
    return f": {text[:_SHOWN]}" if text else ""
