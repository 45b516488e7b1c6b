"""Data sets of reasoning-gym, made and scored in a process.

The process has a fixed hash seed, and its global random generators are nobody else's: five of the
data sets order sets of texts, and one draws from a global generator. It can be ended when a scorer
hangs on what a policy wrote.
"""

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rltune_envs.choices import did_you_mean
from rltune_envs.errors import TaskError
from rltune_envs.guard import CALL_LIMIT_S, call_in_process

SOURCE = "reasoning_gym"
SCORE_LIMIT_S = 10.0
"""Time limit of one score, in seconds; the shipped scorers take milliseconds."""

_PROCESS = "rltune_envs.generated.process:answer"
_N_KEPT = 1 << 13  # entries, mostly of 1 KB


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set of reasoning-gym, as a value.

    Attributes:
        name: Its registered name: `chain_sum`.
        arguments: Keywords of its configuration, as a JSON object.

    """

    name: str
    arguments: str = "{}"

    @property
    def source(self) -> str:
        """Its name as a config has it."""
        return f"{SOURCE}:{self.name}"


@dataclass(frozen=True, slots=True)
class About:
    """What is known of a data set.

    Attributes:
        digest: sha256 over the version of the package, name, arguments and first problems.
        has_answers: Whether its problems come with a gold answer.

    """

    digest: str
    has_answers: bool


@lru_cache(maxsize=64)
def about(dataset: Dataset) -> About:
    """Return what is known of a data set, once it has made its first problems.

    Raises:
        TaskError: The package is not installed, or the data set makes no problem.
        ValueError: There is no such data set or argument; allowed ones are named.

    """
    if importlib.util.find_spec("reasoning_gym") is None:
        raise TaskError(
            f"source is {dataset.source!r}, which needs the package reasoning-gym: "
            "pip install 'rltune[reasoning-gym]'"
        )
    known: Any = _ask(dataset, "about", limit_s=4 * CALL_LIMIT_S)
    _require_known(dataset, known)
    if "refused" in known:
        raise TaskError(
            f"{dataset.source} makes no problem of {dataset.arguments}: {known['refused']}"
        )
    return About(known["digest"], known["has_answers"])


def _require_known(dataset: Dataset, known: Mapping[str, Any]) -> None:
    """Refuse a name or an argument that the package does not have."""
    if names := known.get("names"):
        near = did_you_mean(dataset.name, names)
        raise ValueError(
            f"source is {dataset.source!r}; reasoning-gym has no data set of this name. Choose one "
            f"of {', '.join(names)}.{near}"
        )
    for argument in json.loads(dataset.arguments):
        if argument in ("seed", "size"):
            raise ValueError(
                f"arguments has {argument!r}, which is set for each problem; remove it"
            )
        if argument not in known["arguments"]:
            allowed = ", ".join(known["arguments"]) or "none"
            near = did_you_mean(argument, known["arguments"])
            raise ValueError(
                f"arguments has {argument!r}, which {dataset.name} does not take; it takes "
                f"{allowed}.{near}"
            )


@lru_cache(maxsize=_N_KEPT)
def entry_of(dataset: Dataset, seed: int) -> Mapping[str, Any]:
    """Return the entry of a seed: question, answer and metadata; the same in every process.

    Raises:
        CustomCodeError: It could not be made.

    """
    entry: Any = _ask(dataset, "entry", seed, limit_s=CALL_LIMIT_S)
    return dict(entry)


def score_of(
    dataset: Dataset, answer: str, entry: Mapping[str, Any], *, limit_s: float = SCORE_LIMIT_S
) -> object:
    """Return what the data set's own `score_answer` says to an answer.

    Raises:
        CustomCodeError: It raised, or hung.

    """
    return _ask(dataset, "score", answer, dict(entry), limit_s=limit_s)


def _ask(dataset: Dataset, verb: str, *given: object, limit_s: float) -> object:
    call = (verb, dataset.name, dataset.arguments, *given)
    return call_in_process(f"{dataset.source} {verb}", _PROCESS, call, limit_s=limit_s)
