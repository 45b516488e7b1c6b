"""From the arguments of `MultihopQaEnv` to the source of its questions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from rltune_envs.choices import did_you_mean, require_choice
from rltune_envs.multihop_qa.questions import HOPS, KINDS
from rltune_envs.multihop_qa.sources import (
    BM25,
    OWN,
    ClosedWorld,
    NamedSets,
    QuestionFile,
    Server,
    Source,
)
from rltune_envs.multihop_qa.world import MAX_PASSAGES, MIN_PASSAGES

_T = TypeVar("_T", int, str)


def require_source(
    *,
    questions: str | None,
    file_format: str,
    evaluation: Mapping[str, Mapping[str, str]],
    world_seed: int,
    passages: int,
    hops: Sequence[int],
    kinds: Sequence[str],
    corpus: str,
    retriever: str,
) -> Source:
    """Return where questions come from, and what is searched. No file is opened yet.

    Raises:
        ValueError: An argument is out of its range; it is named.

    """
    server = None if retriever == BM25 else _server(retriever)
    if questions is not None:
        from rltune_envs.multihop_qa.files import FILE_FORMATS

        require_choice("file_format", file_format, FILE_FORMATS)
        train = QuestionFile(str(questions), file_format, str(corpus), server)
        if not evaluation:
            return train
        for one in evaluation.values():
            require_choice("file_format", one["file_format"], FILE_FORMATS)
        sets = (
            (name, replace(train, path=str(one["file"]), file_format=one["file_format"]))
            for name, one in sorted(evaluation.items())  # a config is the same in any order
        )
        return NamedSets(train, tuple(sets))
    if evaluation:
        raise ValueError(
            f"eval: {', '.join(evaluation)} cannot be measured beside the closed world; give "
            "questions a file"
        )
    if corpus != OWN:
        raise ValueError(
            f"corpus: {corpus!r} cannot be searched for the closed world, which has one corpus; "
            f"leave it at {OWN!r}, or give questions a file"
        )
    if world_seed < 0:
        raise ValueError(f"world_seed: {world_seed!r} is negative; give 0 or more")
    if not MIN_PASSAGES <= passages <= MAX_PASSAGES:
        raise ValueError(f"passages: {passages!r}; give {MIN_PASSAGES} to {MAX_PASSAGES}")
    return ClosedWorld(
        world_seed,
        passages,
        tuple(sorted(_chosen("hops", hops, HOPS))),
        tuple(sorted(_chosen("kinds", kinds, KINDS))),
        server,
    )


def _chosen(name: str, given: Sequence[_T], allowed: Sequence[_T]) -> set[_T]:
    """Return the chosen values if they are some of the allowed ones."""
    chosen = set(given)
    if chosen and chosen <= set(allowed):
        return chosen
    choices = ", ".join(map(str, allowed))
    raise ValueError(f"{name}: {list(given)!r}; give one or more of {choices}")


def _server(retriever: str) -> Server:
    """Return the server of an address."""
    if retriever.startswith(("http://", "https://")):
        from rltune_envs.multihop_qa.http_retriever import HttpRetriever

        HttpRetriever(retriever)  # refuses a bad address
        return Server(retriever)
    raise ValueError(
        f"retriever: {retriever!r} is not a retriever. Give {BM25}, or a URL such as "
        f"http://127.0.0.1:8000/retrieve.{did_you_mean(retriever, [BM25])}"
    )
