"""Embedders: texts as vectors, for dense retrieval. Each has a name by which indices know it."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rltune_envs.errors import RetrieverError
from rltune_envs.multihop_qa.words import terms

Vectors = npt.NDArray[np.float32]
HASHING = "hashing"
"""Name of the embedder that needs no model."""

_DIMENSION = 512
_TIMEOUT_S = 60.0


class Embedder(Protocol):
    """Makes vectors of texts.

    Attributes:
        name: The model and all that changes its vectors; an index made under another is refused.

    """

    name: str

    def embed(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        """Return one vector a text, as rows of [texts, dimension].

        Raises:
            RetrieverError: There is no answer.

        """


class HashingEmbedder:
    """Counts terms in places that their hashes choose, with a sign; needs no model and no training.

    Equal in every process and on every machine. Two texts are near where they share terms, so it
    finds what BM25 finds, without its weights: for tests and for trying out, not for results.
    """

    name = f"{HASHING}-{_DIMENSION}"

    def embed(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        """Return the vectors of texts; queries and passages are treated alike."""
        vectors = np.zeros((len(texts), _DIMENSION), np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for term, count in Counter(terms(text)).items():
                place, sign = _place(term)
                row[place] += sign * math.sqrt(count)
        return vectors


@lru_cache(maxsize=1 << 18)
def _place(term: str) -> tuple[int, int]:
    """Return the place and the sign of a term."""
    number = int.from_bytes(hashlib.blake2b(term.encode(), digest_size=8).digest(), "big")
    return (number >> 1) % _DIMENSION, 1 if number & 1 else -1


class EndpointEmbedder:
    """Asks a server that speaks OpenAI's `/v1/embeddings` protocol (vLLM, TEI, llama.cpp).

    No key is sent.

    Args:
        url: Address of the endpoint; the model's name after `#`, where the server needs one.
        prefixes: Written before each query and before each passage.

    """

    def __init__(self, url: str, *, prefixes: tuple[str, str] = ("", "")) -> None:
        import httpx

        self._url, _, self._model = url.partition("#")
        self._prefixes = prefixes
        self.name = f"{url} {prefixes[0]!r} {prefixes[1]!r}"
        self._client = httpx.Client(timeout=_TIMEOUT_S, trust_env=False)

    def embed(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        """Return the server's vectors.

        Raises:
            RetrieverError: It does not answer, or not in the protocol.

        """
        import httpx

        prefix = self._prefixes[not is_query]
        body = {"model": self._model, "input": [prefix + text for text in texts]}
        try:
            answer = self._client.post(self._url, json=body)
        except httpx.HTTPError as error:
            raise RetrieverError(
                f"{self._url}: {type(error).__name__}: {error}; check that it serves embeddings"
            ) from error
        if answer.status_code != 200:
            raise RetrieverError(
                f"{self._url}: it answered HTTP {answer.status_code}: {answer.text[:200]}"
            )
        return self._vectors(answer.content, len(texts))

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def _vectors(self, content: bytes, n: int) -> Vectors:
        """Return the vectors of an answer, in the order of the texts."""
        try:
            rows: list[dict[str, Any]] = json.loads(content)["data"]
            by_index = {int(row["index"]): row["embedding"] for row in rows}
            vectors = np.array([by_index[index] for index in range(n)], np.float32)
        except (ValueError, KeyError, TypeError) as error:
            raise RetrieverError(
                f"{self._url}: its answer is not one of OpenAI's embeddings protocol "
                f"({type(error).__name__}: {error})"
            ) from error
        if vectors.ndim != 2 or len(vectors) != len(rows) or not np.isfinite(vectors).all():
            raise RetrieverError(
                f"{self._url}: it answered {n} texts with numbers of shape {vectors.shape}; needed "
                "is a vector for each, of finite numbers"
            )
        return vectors
