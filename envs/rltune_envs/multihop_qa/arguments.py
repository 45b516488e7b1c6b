"""What the arguments of `MultihopQaEnv` may be; each error names the key."""

import math
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TypeVar

from rltune_envs.multihop_qa.questions import HOPS, KINDS
from rltune_envs.multihop_qa.sources import BM25, OWN, ClosedWorld, QuestionFile, Server, Source
from rltune_envs.multihop_qa.world import MAX_PASSAGES, MIN_PASSAGES

_T = TypeVar("_T", int, str)

PROMPTS = ("natural", "compact")


def require_prompt(prompt: str) -> None:
    """Refuse an unknown prompt.

    Raises:
        ValueError: It is not one of `PROMPTS`.

    """
    if prompt not in PROMPTS:
        raise ValueError(f"prompt: {prompt!r} is not a prompt. Choose one of {', '.join(PROMPTS)}")


def require_limits(
    *,
    k: int,
    max_turns: int,
    max_searches: int,
    max_information_words: int,
    format_penalty: float,
) -> None:
    """Check the numbers that bound an episode.

    Raises:
        ValueError: One is out of its range; it is named.

    """
    least = {"k": 1, "max_turns": 1, "max_searches": 0, "max_information_words": 1}
    values = (k, max_turns, max_searches, max_information_words)
    for (name, low), value in zip(least.items(), values, strict=True):
        if value < low:
            raise ValueError(f"{name}: {value!r} is too small; give {low} or more")
    if not -math.inf < format_penalty <= 0:
        raise ValueError(f"format_penalty: {format_penalty!r}; give 0 or a finite negative number")


def require_source(
    *,
    questions: str | None,
    file_format: str,
    world_seed: int,
    passages: int,
    hops: Sequence[int],
    kinds: Sequence[str],
    corpus: str,
    retriever: str,
) -> Source:
    """Return where questions come from and what is searched. No file is opened yet.

    Raises:
        ValueError: An argument is out of its range; it is named.

    """
    server = None if retriever == BM25 else _server(retriever)
    if questions is not None:
        from rltune_envs.multihop_qa.files import require_file_format

        require_file_format(file_format)
        return QuestionFile(str(questions), file_format, str(corpus), server)
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
    """Return what was given, if it is some of what is allowed."""
    chosen = set(given)
    if chosen and chosen <= set(allowed):
        return chosen
    choices = ", ".join(map(str, allowed))
    raise ValueError(f"{name}: {list(given)!r}; give one or more of {choices}")


def _server(retriever: str) -> Server:
    """Return the server of an address."""
    if retriever.startswith(("http://", "https://")):
        from rltune_envs.multihop_qa.http_retriever import HttpRetriever

        HttpRetriever(retriever)  # raises where it is none
        return Server(retriever)
    near = get_close_matches(retriever, [BM25], n=1)
    hint = f". Did you mean {near[0]!r}?" if near else ""
    raise ValueError(
        f"retriever: {retriever!r} is not a retriever. Give {BM25}, or a URL such as "
        f"http://127.0.0.1:8000/retrieve{hint}"
    )
