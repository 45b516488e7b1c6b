"""Custom code that a config runs: its import paths, and how they are refused.

A sweep file from somebody else may name any function that can be imported, and running the sweep,
or checking it, imports and calls it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rltune.errors import Problem, SpecError
from rltune.spec.load import LoadedSweep


def import_paths(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each key of a resolved config that holds an import path, with the path."""
    if config["env"]["kind"] == "custom":
        yield "env.factory", config["env"]["factory"]
    if config["env"]["kind"] == "verified" and ":" in config["env"]["verifier"]["kind"]:
        yield "env.verifier.kind", config["env"]["verifier"]["kind"]
    for i, term in enumerate((config["reward"] or {}).get("terms", ())):
        if ":" in term["score"]:
            yield f"reward.terms.{i}.score", term["score"]
    if config.get("advantage", {}).get("kind") == "custom":  # what is only played has none
        yield "advantage.estimator", config["advantage"]["estimator"]


def custom_code(loaded: LoadedSweep) -> tuple[tuple[str, str], ...]:
    """Return every (key, import path) of any condition, each once."""
    found = (pair for condition in loaded.conditions for pair in import_paths(condition.config))
    return tuple(dict.fromkeys(found))


def refuse_custom_code(loaded: LoadedSweep) -> None:
    """Refuse a sweep that runs custom code, before anything is imported.

    Raises:
        SpecError: Names every import path.

    """
    refuse_paths((loaded.where(key), path) for key, path in custom_code(loaded))


def refuse_paths(found: Iterable[tuple[str, str]]) -> None:
    """Refuse import paths.

    Raises:
        SpecError: Names every import path; there is one.

    """
    problems = [
        Problem(
            where,
            f"{path!r} is custom code, which --no-custom-code refuses.",
            action="Read that code, then run without --no-custom-code.",
        )
        for where, path in found
    ]
    if problems:
        raise SpecError(problems)
