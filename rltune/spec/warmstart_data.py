"""What the tiny policies were trained on and can write; `rltune check` warns beyond that."""

import re
from collections.abc import Sequence
from typing import Any

UNSEEN_TASKS = 2048
"""First tasks of `TAUGHT_ENVS` that were kept from a tiny policy's demonstrations.

Held-out and test tasks together must be among them.
"""

TAUGHT_ENVS: dict[str, dict[str, Any]] = {
    "sokoban": {},
    "frozen_lake": {},
    "multihop_qa": {"hops": [2], "kinds": ["bridge"], "k": 1},
    "arithmetic": {},
}
"""Kinds of env with a tiny policy -> the keys of its env section besides the defaults."""

_GRID_WORDS = ("||", "Up", "Down", "Left", "Right", "<answer>", "</answer>")
_GRID_CELLS = {"sokoban": "#_OX√PS", "frozen_lake": "P_OGX√"}
_SUMS = (",", "\\boxed{", *"}0123456789+-=")
_QA_TAGS = ("<search>", "<answer>", "</search>", "</answer>", "<information>", "</information>")


def tiny_words(env_kind: str) -> tuple[str, ...]:
    """Return the tokens that a tiny policy can write, those that mark a decision first."""
    if env_kind in _GRID_CELLS:
        return (*_GRID_WORDS, *_GRID_CELLS[env_kind])
    if env_kind == "arithmetic":
        return _SUMS
    from rltune_envs.multihop_qa.world import WORDS

    return (*_QA_TAGS, *WORDS)


def can_write(phrase: str, words: Sequence[str]) -> bool:
    """Return whether a phrase may stand in text of these tokens, whatever the case.

    Where tokens are words, as of questions, each word of a phrase is one, or a part of a tag. Else
    no space stands between tokens, so that a phrase is one word: the end of a token, whole tokens
    and the start of one, or a part of one.
    """
    parts = phrase.casefold().split()
    known = [word.casefold() for word in words]
    if "<search>" in words:
        tags = [word for word in known if not word.isalnum()]
        return all(part in known or any(part in tag for tag in tags) for part in parts)
    ends = "|".join(re.escape(word[i:]) for word in known for i in range(len(word)))
    starts = "|".join(re.escape(word[: i + 1]) for word in known for i in range(len(word)))
    whole = "|".join(map(re.escape, known))
    pattern = re.compile(f"(?:{ends})?(?:{whole})*(?:{starts})?")
    return len(parts) == 1 and (
        bool(pattern.fullmatch(parts[0])) or any(parts[0] in word for word in known)
    )
