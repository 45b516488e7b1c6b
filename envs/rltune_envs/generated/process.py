"""The other end of `generated.dataset`: the only module that imports reasoning-gym."""

import dataclasses
import hashlib
import json
import random
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import reasoning_gym  # noqa: TID253 - nobody but its process imports this module
import sympy.core.random  # noqa: TID253
from reasoning_gym.composite import DatasetSpec  # noqa: TID253
from reasoning_gym.factory import DATASETS  # noqa: TID253

from rltune_envs.code_place import describe_error

BLOCK = 500
"""Problems of one data set; some data sets make a list of all when they are made."""

_TRIES = 20  # seeds that are tried for one problem; some draw numbers that have no solution
_N_FIRST = 4  # problems in the digest
_ARBITRARY = "codeio"  # runs thousands of programs that a language model wrote
_SET_BY_SEED = ("seed", "size")


def answer(call: tuple[Any, ...]) -> object:
    """Answer a call `(verb, name of a data set, its arguments as JSON, ...)`."""
    verb, *given = call
    return _VERBS[verb](*given)


def _about(name: str, arguments: str) -> dict[str, Any]:
    """Return what is known of a data set, or what it refuses."""
    if name not in DATASETS:
        return {"names": sorted(DATASETS)}
    fields = [field.name for field in dataclasses.fields(DATASETS[name][1])]
    known: dict[str, Any] = {"arguments": [one for one in fields if one not in _SET_BY_SEED]}
    if not set(json.loads(arguments)) <= set(known["arguments"]):
        return known
    try:
        entries = [_entry(name, arguments, seed) for seed in range(_N_FIRST)]
    except Exception as error:  # whatever a data set raises at its arguments
        return {**known, "refused": describe_error(error)}
    identity = [version("reasoning-gym"), name, arguments]
    content = [[entry["question"], entry["answer"]] for entry in entries]
    digest = hashlib.sha256(json.dumps([identity, content]).encode()).hexdigest()
    return {**known, "digest": digest, "has_answers": entries[0]["answer"] is not None}


def _entry(name: str, arguments: str, seed: int) -> Mapping[str, Any]:
    """Return the entry of a seed.

    Raises:
        Exception: Whatever the data set raised at the last of `_TRIES` seeds.

    """
    block, index = divmod(seed, BLOCK)
    for number in range(_TRIES - 1):
        try:
            return _made(name, arguments, f"{block}/{number}", index)
        except Exception:  # no problem comes of these draws
            continue
    return _made(name, arguments, f"{block}/{_TRIES - 1}", index)


def _made(name: str, arguments: str, stream: str, index: int) -> Mapping[str, Any]:
    seed = int.from_bytes(hashlib.sha256(stream.encode()).digest()[:4]) >> 1
    dataset = _dataset(name, arguments, seed)
    _seed_global_generators(seed + index)
    try:
        entry: Mapping[str, Any] = dataset[index]
    except Exception:  # one data set remembers where it failed
        _datasets.clear()
        raise
    return entry


def _seed_global_generators(seed: int) -> None:
    """Seed what data sets may draw from beside their own generators."""
    random.seed(seed)
    np.random.seed(seed)
    sympy.core.random.seed(seed)


_datasets: dict[tuple[str, str, int], Any] = {}
_MOST = 32  # of them; 4096 problems are nine blocks


def _dataset(name: str, arguments: str, seed: int) -> Any:
    key = name, arguments, seed
    if key not in _datasets:
        if len(_datasets) >= _MOST:
            _datasets.clear()
        _seed_global_generators(seed)
        given = json.loads(arguments)
        if name == "composite":
            given["datasets"] = [DatasetSpec(**one) for one in given.get("datasets", [])]
        if _ARBITRARY in (name, *(one.name for one in given.get("datasets", []))):
            raise ValueError(f"{_ARBITRARY} runs programs whose results are not always the same")
        _datasets[key] = reasoning_gym.create_dataset(name, **given, seed=seed, size=BLOCK)
    return _datasets[key]


def _score(name: str, arguments: str, given: str, entry: Mapping[str, Any]) -> object:
    dataset = _dataset(name, arguments, 0)
    _seed_global_generators(0)  # sympy tries random numbers: no score depends on those before it
    return dataset.score_answer(given, entry)


_VERBS: Mapping[str, Callable[..., object]] = {"about": _about, "entry": _entry, "score": _score}
