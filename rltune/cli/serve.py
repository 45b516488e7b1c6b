"""`rltune serve-retriever` and `rltune serve-tinker`: servers that run until Ctrl-C."""

import errno
import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from rltune.cli.console import warn
from rltune.cli.dense_index import open_dense
from rltune.errors import InputError, Problem
from rltune.remote.sdk import require_sdk
from rltune.runner.process import THREAD_VARIABLES, set_threads
from rltune_envs.errors import EnvError
from rltune_envs.multihop_qa.bm25 import Bm25Retriever
from rltune_envs.multihop_qa.files import load_questions
from rltune_envs.multihop_qa.files_corpus import load_corpus
from rltune_envs.multihop_qa.records import Passage, RankingRetriever
from rltune_envs.multihop_qa.server import RetrievalServer
from rltune_envs.multihop_qa.world import World

_STOP = (signal.SIGTERM, signal.SIGINT)


def serve_retriever(
    corpus: Annotated[
        Path | None,
        typer.Option(
            "--corpus",
            metavar="FILE",
            help='JSON lines {"contents": "\\"Title\\"\\ntext"} or {"title": ..., "text": ...}.',
        ),
    ] = None,
    questions: Annotated[
        Path | None,
        typer.Option(
            "--questions", metavar="FILE", help="Question file whose passages are served."
        ),
    ] = None,
    file_format: Annotated[
        str, typer.Option("--file-format", metavar="NAME", help="Format of the question file.")
    ] = "auto",
    world_seed: Annotated[
        int,
        typer.Option(
            "--world-seed", min=0, help="Seed of the closed world that is served by default."
        ),
    ] = 0,
    world_passages: Annotated[
        int, typer.Option("--world-passages", min=1, help="Number of passages in the closed world.")
    ] = 3000,
    dense: Annotated[
        str | None,
        typer.Option(
            "--dense",
            metavar="MODEL",
            help="Rank by vectors of this model in place of BM25: a folder or hub id of "
            "transformers, the URL of an OpenAI embeddings endpoint (URL#MODEL), or hashing.",
        ),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(
            "--index",
            metavar="DIR",
            help="Folder of the vectors, built once; by default beside the passages' file.",
        ),
    ] = None,
    prefixes: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--prefixes",
            metavar="QUERY PASSAGE",
            help="Texts before queries and passages; by default those of E5 where the name says "
            "so, else none.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; 0.0.0.0 means all interfaces.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port; 0 picks a free one.")
    ] = 8000,
) -> None:
    """Serve passages over the Search-R1 protocol until Ctrl-C; prints the address.

    Example:
      rltune serve-retriever --port 0
      rltune serve-retriever --corpus wiki.jsonl --host 0.0.0.0
      rltune serve-retriever --corpus wiki.jsonl --dense intfloat/e5-base-v2

    """
    try:
        passages, source = _source(corpus, questions, file_format, world_seed, world_passages)
        if dense is None:
            _refuse_unused(index, prefixes)
            retriever: RankingRetriever = Bm25Retriever(passages)
        else:
            folder = index or _beside(corpus or questions, world_seed, world_passages)
            retriever = open_dense(passages, dense, folder, prefixes)
            source = f"{source} by {dense}"
    except (EnvError, ValueError, ImportError, OSError) as error:
        raise InputError(str(error)) from error
    try:
        server = RetrievalServer(retriever, host=host, port=port)
    except OSError as error:
        raise InputError(_cannot_listen(host, port, error)) from error
    with server:
        _serve(server.url, f"{len(passages)} passages of {source}")


def serve_tinker(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="FOLDER",
            help="Folder of a base model to offer besides the shipped tiny ones; repeatable.",
        ),
    ] = None,
    checkpoints: Annotated[
        Path,
        typer.Option(
            "--checkpoints", metavar="DIR", help="Folder of named checkpoints; made where missing."
        ),
    ] = Path("tinker-checkpoints"),
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads given to torch.")] = 1,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; it asks for no key.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port; 0 picks a free one.")
    ] = 8000,
) -> None:
    """Serve training over the Tinker protocol, with torch on this machine; prints the address.

    It trains LoRA adapters of small models on the CPU: to try and to test what would otherwise need
    the hosted service. The Tinker SDK talks to it: pip install 'rltune[tinker]'.

    Example:
      rltune serve-tinker --port 0
      rltune serve-tinker --model ./smollm2 --checkpoints ./states

    """
    require_sdk("rltune serve-tinker")
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    set_threads(threads)
    from rltune.remote.server.bases import Bases  # torch: its threads are set now
    from rltune.remote.server.http import TinkerServer
    from rltune.remote.server.service import Service

    bases = Bases(tuple(model or ()))
    try:
        server = TinkerServer(Service(checkpoints, bases), host=host, port=port)
    except OSError as error:
        raise InputError(_cannot_listen(host, port, error)) from error
    with server:
        _serve(server.url, f"{', '.join(bases.names)} over the Tinker protocol")


def _refuse_unused(index: Path | None, prefixes: tuple[str, str] | None) -> None:
    given = {"--index": index, "--prefixes": prefixes}
    if names := [name for name, value in given.items() if value is not None]:
        what = "has no effect: BM25 needs neither."
        raise InputError(Problem(", ".join(names), what, action="Give --dense MODEL, or leave it."))


def _beside(file: Path | None, world_seed: int, world_passages: int) -> Path:
    """Return the default folder of the vectors."""
    if file is None:
        return Path(f"closed-world-{world_seed}-{world_passages}.dense")
    return file.with_name(f"{file.name}.dense")


def _serve(url: str, what: str) -> None:
    """Print what is served, and return at the first SIGTERM or SIGINT."""
    try:
        for one in _STOP:
            signal.signal(one, signal.default_int_handler)
        warn(f"Serving {what}. Stop with Ctrl-C.")
        typer.echo(url)
        while True:
            signal.pause()
    except KeyboardInterrupt:
        for one in _STOP:  # a second one must not break the stopping off
            signal.signal(one, signal.SIG_IGN)


def _source(
    corpus: Path | None,
    questions: Path | None,
    file_format: str,
    world_seed: int,
    world_passages: int,
) -> tuple[tuple[Passage, ...], str]:
    """Return the passages to serve, and a description of their source."""
    if corpus is not None and questions is not None:
        raise InputError(
            Problem("--corpus, --questions", "both were given.", action="Give one of the two.")
        )
    if corpus is not None:
        return load_corpus(corpus), str(corpus)
    if questions is not None:
        loaded = load_questions(questions, file_format=file_format)
        passages = tuple(dict.fromkeys(one for question in loaded for one in question.passages))
        if not passages:
            raise InputError(
                Problem(str(questions), "its questions have no passages.", action="Give --corpus.")
            )
        return passages, str(questions)
    world = World(seed=world_seed, passages=world_passages)
    return world.passages, f"the closed world {world_seed}"


def _cannot_listen(host: str, port: int, error: OSError) -> Problem:
    """Return why the server cannot listen at an address."""
    if error.errno == errno.EADDRINUSE:
        return Problem(
            f"--port {port}",
            f"another program listens at {host}:{port} already.",
            action="Stop it, or give another port; 0 takes a free one.",
        )
    why = error.strerror or str(error)
    return Problem(
        f"--host {host} --port {port}",
        f"cannot listen there: {why}.",
        action="127.0.0.1 is this machine alone, 0.0.0.0 all of its addresses.",
    )
