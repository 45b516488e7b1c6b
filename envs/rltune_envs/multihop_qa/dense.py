"""Dense retrieval: passages by the cosine of their vectors with the query's, searched by faiss.

The search is exact. The vectors lie in a folder, built once and read through the page cache:

    index.json      what they were made of: model, dimension, passages, digest of the corpus
    vectors.f32     [passages, dimension] float32, little endian, rows of length 1
    vectors.part    the same while it is built; an interrupted build goes on from it
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rltune_envs.errors import RetrieverError, TaskError
from rltune_envs.multihop_qa.embedders import Embedder, Vectors
from rltune_envs.multihop_qa.records import Passage

BATCH = 64  # passages embedded at once
_VERSION = 1
_INSTALL = "dense retrieval needs faiss: pip install 'rltune[dense]'"
_DTYPE = np.dtype("<f4")

Progress = Callable[[int, int], None]
"""Told how many passages are embedded, and of how many."""


class DenseRetriever:
    """Ranks passages by cosine; opens the index of a folder, or builds it there.

    Equal scores keep the order of the passages; which of them the last place goes to is faiss's
    choice. Threads may share it if they may share the embedder.

    Args:
        passages: What is searched.
        embedder: Makes the vectors.
        folder: Of the index.
        progress: Told of the building.

    Raises:
        ImportError: faiss is not installed.
        TaskError: The folder holds the index of something else, or there is no passage.
        RetrieverError: The embedder does not answer.

    """

    def __init__(
        self,
        passages: Sequence[Passage],
        embedder: Embedder,
        folder: Path,
        *,
        progress: Progress = lambda done, total: None,
    ) -> None:
        require_faiss()
        if not passages:
            raise TaskError("passages: there is none to index; give at least one")
        self.passages = tuple(passages)
        self._embedder = embedder
        self._vectors = _open(self.passages, embedder, folder, progress)

    def search(self, query: str, *, k: int) -> tuple[Passage, ...]:
        """Return at most `k` passages, best first; none for a query without a vector."""
        return tuple(self.passages[number] for number, _ in self.rank(query, k=k))

    def rank(self, query: str, *, k: int) -> list[tuple[int, float]]:
        """Return the indices and cosines of what `search` finds.

        Raises:
            ValueError: `k` is below 1.
            RetrieverError: The embedder does not answer.

        """
        import faiss

        if k < 1:
            raise ValueError(f"k: {k} is below 1; ask for at least one passage")
        vector = _vectors(self._embedder, [query], is_query=True)
        if not vector.any():
            return []
        k = min(k, len(self.passages))
        # One query a call: the last bits of a score depend on the number of queries.
        scores, numbers = faiss.knn(vector, self._vectors, k, metric=faiss.METRIC_INNER_PRODUCT)
        found = zip(numbers[0].tolist(), scores[0].tolist(), strict=True)
        return sorted(found, key=lambda one: (-one[1], one[0]))


def require_faiss() -> None:
    """Import faiss.

    Raises:
        ImportError: It is not installed; says how to install it.

    """
    try:
        import faiss  # noqa: F401
    except ImportError as error:
        raise ImportError(_INSTALL) from error


def unit(vectors: Vectors) -> Vectors:
    """Return vectors with length 1; one of zeros stays."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return np.ascontiguousarray(vectors / np.where(lengths == 0, 1, lengths), np.float32)


def _vectors(embedder: Embedder, texts: Sequence[str], *, is_query: bool) -> Vectors:
    """Return a vector of length 1 for each text.

    Raises:
        RetrieverError: One has a number that is not finite: it would be near to nothing.

    """
    vectors = unit(embedder.embed(texts, is_query=is_query))
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if bad.size:
        start = " ".join(texts[bad[0]].split())[:80]
        raise RetrieverError(
            f"{embedder.name}: it made a vector with numbers that are not finite of {start!r}; try "
            "the model in float32"
        )
    return vectors


def text_of(passage: Passage) -> str:
    """Return what is embedded of a passage: title and text."""
    return f"{passage.title}\n{passage.text}"


def _open(
    passages: Sequence[Passage], embedder: Embedder, folder: Path, progress: Progress
) -> Vectors:
    """Return the vectors of a folder, memory-mapped; they are built where they lack."""
    header = _read_header(folder)
    asked = {
        "version": _VERSION,
        "model": embedder.name,
        "passages": len(passages),
        "corpus_sha256": _digest(passages),
    }
    if header is None:
        _require_no_vectors(folder)
        dimension = embedder.embed([text_of(passages[0])], is_query=False).shape[1]
        header = {**asked, "dimension": dimension}
        folder.mkdir(parents=True, exist_ok=True)
        _write_whole(folder / "index.json", json.dumps(header, indent=1))
    _require_same(folder, header, asked)
    path = folder / "vectors.f32"
    shape = len(passages), int(header["dimension"])
    if not path.exists():
        _build(path, passages, embedder, shape[1], progress)
    size = shape[0] * shape[1] * _DTYPE.itemsize
    if path.stat().st_size != size:
        raise TaskError(f"{path}: has {path.stat().st_size} bytes, not {size}; delete the folder")
    return np.memmap(path, _DTYPE, mode="r", shape=shape)


def _require_no_vectors(folder: Path) -> None:
    """Refuse vectors without a header: nobody knows what they were made of."""
    for path in (folder / "vectors.f32", folder / "vectors.part"):
        if path.exists():
            raise TaskError(f"{path}: has no index.json beside it; delete the folder")


def _require_same(folder: Path, header: dict[str, Any], asked: dict[str, Any]) -> None:
    other = [key for key, value in asked.items() if header.get(key) != value]
    if other:
        key = other[0]
        raise TaskError(
            f"{folder / 'index.json'}: {key} is {header.get(key)!r}, not {asked[key]!r}: it is the "
            "index of something else. Give another folder, or delete this one to build it again"
        )


def _build(
    path: Path, passages: Sequence[Passage], embedder: Embedder, dimension: int, progress: Progress
) -> None:
    """Write the vectors of all passages, from where an earlier build stopped."""
    part, row = path.with_suffix(".part"), dimension * _DTYPE.itemsize
    with part.open("ab") as file:
        _lock(file, part)
        done = part.stat().st_size // row
        file.truncate(done * row)
        progress(done, len(passages))
        for start in range(done, len(passages), BATCH):
            batch = [text_of(one) for one in passages[start : start + BATCH]]
            vectors = _vectors(embedder, batch, is_query=False)
            if vectors.shape != (len(batch), dimension):
                raise TaskError(
                    f"{embedder.name}: it made vectors of shape {vectors.shape} of {len(batch)} "
                    f"texts; the index has {dimension} numbers a text"
                )
            file.write(vectors.astype(_DTYPE).tobytes())
            progress(start + len(batch), len(passages))
        file.flush()
        os.fsync(file.fileno())
        part.replace(path)


def _lock(file: BinaryIO, part: Path) -> None:
    """Keep other processes from writing to the same file until it is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise TaskError(f"{part}: another process builds this index; wait for its end") from error


def _read_header(folder: Path) -> dict[str, Any] | None:
    path = folder / "index.json"
    if not path.exists():
        return None
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
        return {**header, "dimension": int(header["dimension"])}
    except (ValueError, KeyError, TypeError) as error:
        raise TaskError(f"{path}: is not the header of an index; delete the folder") from error


def _write_whole(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def _digest(passages: Sequence[Passage]) -> str:
    digest = hashlib.sha256()
    for one in passages:
        digest.update(json.dumps([one.title, one.text]).encode())
    return digest.hexdigest()
