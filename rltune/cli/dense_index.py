"""Open the dense index of a corpus, or build it with a progress bar."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rltune_envs.multihop_qa.dense import DenseRetriever, Progress, require_faiss
from rltune_envs.multihop_qa.embedders import HASHING, Embedder, EndpointEmbedder, HashingEmbedder
from rltune_envs.multihop_qa.records import Passage

_OF_E5 = ("query: ", "passage: ")


def open_dense(
    passages: Sequence[Passage], model: str, folder: Path, prefixes: tuple[str, str] | None
) -> DenseRetriever:
    """Return a dense retriever over passages.

    Args:
        passages: What is searched.
        model: `hashing`, an address, or a model of transformers.
        folder: Of the index.
        prefixes: Of queries and passages; None chooses by the model's name.

    Raises:
        ImportError: faiss is not installed.
        EnvError: The index or the endpoint cannot be used.
        InputError: The model cannot be loaded.

    """
    require_faiss()  # before a model is loaded
    embedder = _embedder(model, prefixes or (_OF_E5 if "e5-" in model.lower() else ("", "")))
    with _bar() as progress:
        return DenseRetriever(passages, embedder, folder, progress=progress)


def _embedder(model: str, prefixes: tuple[str, str]) -> Embedder:
    if model == HASHING:
        return HashingEmbedder()
    if model.startswith(("http://", "https://")):
        return EndpointEmbedder(model, prefixes=prefixes)
    import torch

    from rltune.policy.embed import TransformersEmbedder

    device = "cuda" if torch.cuda.is_available() else "cpu"
    return TransformersEmbedder(model, prefixes=prefixes, device=device)


@contextmanager
def _bar() -> Iterator[Progress]:
    """Yield what draws the progress of building, on standard error; nothing without building."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("Embedding passages"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    task = bar.add_task("", total=None)

    def show(done: int, total: int) -> None:
        bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        bar.stop()
