"""The part of the contract about records: types, and fields that must agree."""

import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import UnionType
from typing import Any, get_origin, get_type_hints

from rltune_envs.base import FailureClass, Step, Task, TextEnv
from rltune_envs.errors import ContractError
from rltune_envs.protocols import HasCeiling, HasExpert, HasFloor, HasRandomPlayer, supports

_SHA256 = re.compile(r"[0-9a-f]{64}")
_TYPES = "types are as declared"


def _declared(kind: type[Step | Task]) -> dict[str, Any]:
    """Return the type of each field."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


_DECLARED = {kind: _declared(kind) for kind in (Step, Task)}


def broken(clause: str, seed: int, detail: str) -> ContractError:
    """Return the error that names a broken clause and the seed that shows it."""
    return ContractError(f"{clause}: with seed {seed}, {detail}")


def require_step(step: Step, seed: int) -> None:
    """Check the types of one step, and its fields against each other."""
    _require_types(step, Step, seed)
    if not all(map(math.isfinite, (step.reward, *step.auxiliary.values()))):
        detail = f"reward is {step.reward!r} and auxiliary {step.auxiliary!r}"
        raise broken("rewards and measures are finite", seed, detail)
    if step.terminated and step.truncated:
        raise broken(
            "terminated and truncated exclude each other",
            seed,
            "a step has both; a task that is solved at the limit is terminated only",
        )
    if step.success and not step.terminated:
        detail = "a step has success=True and terminated=False"
        raise broken("success ends the task", seed, detail)
    if step.is_valid != (step.n_invalid == 0):
        detail = f"a step has is_valid={step.is_valid} and n_invalid={step.n_invalid}"
        raise broken("is_valid means n_invalid == 0", seed, detail)
    if len(step.fault.splitlines()) > 1:
        raise broken("a fault is one line", seed, f"one is {step.fault!r}")


def require_episode(env: TextEnv, steps: Sequence[Step], seed: int) -> None:
    """Check every step of a whole episode, and what the last one says about all.

    Before the end `failure_class` is `none` and `auxiliary` is empty. On the last step `auxiliary`
    has exactly the keys `auxiliary_names`, and `failure_class` is `none` on a success and `fault`
    when any step had a fault (an episode with a fault is not a success).
    """
    for step in steps:
        require_step(step, seed)
    *before, last = steps
    if any(step.failure_class is not FailureClass.NONE for step in before):
        raise broken("failure_class belongs to the end", seed, "a step before it has one")
    if any(step.auxiliary for step in before):
        raise broken("auxiliary belongs to the end", seed, "a step before it has measures")
    if sorted(last.auxiliary) != sorted(env.auxiliary_names):
        detail = f"they are {sorted(last.auxiliary)}, not {sorted(env.auxiliary_names)}"
        raise broken("auxiliary has the keys auxiliary_names", seed, detail)
    _require_failure_class(last, seed, has_fault=any(step.fault for step in steps))


def _require_failure_class(last: Step, seed: int, *, has_fault: bool) -> None:
    kind = last.failure_class
    if (kind is FailureClass.FAULT) != has_fault:
        detail = f"failure_class is {kind.value!r} and a fault {'did' if has_fault else 'did not'}"
        raise broken("failure_class is fault where one happened", seed, f"{detail} happen")
    if (kind is FailureClass.NONE) != last.success:
        detail = f"it is {kind.value!r} with success={last.success}"
        raise broken("failure_class is none on success only", seed, detail)
    is_of_a_limit = kind in (FailureClass.UNFINISHED, FailureClass.MALFORMED)
    if (is_of_a_limit and not last.truncated) or (kind == "malformed" and last.is_valid):
        detail = f"it is {kind.value!r} with truncated={last.truncated}, is_valid={last.is_valid}"
        raise broken("failure_class agrees with how it ended", seed, detail)


def require_task(task: Task, seed: int) -> None:
    """Check the types of a task, its seed and hashes, and that it is not solved already."""
    _require_types(task, Task, seed)
    if task.seed != seed:
        raise broken("task(seed) describes that seed", seed, f"it gave {task}")
    if task.difficulty is not None and task.difficulty < 1:
        detail = f"difficulty is {task.difficulty}"
        raise broken("no task is solved before it starts", seed, detail)
    for name, value in (("content_hash", task.content_hash), ("near_hash", task.near_hash)):
        if not _SHA256.fullmatch(value):
            detail = f"{name} is {value!r}, not 64 hexadecimal digits"
            raise broken("hashes are sha256", seed, detail)
    for name, fact in task.facts.items():
        if type(fact) not in (str, int, float, bool) or fact != fact:
            detail = f"facts[{name!r}] is {fact!r}; allowed are strings, numbers and booleans"
            raise broken("facts are plain JSON values", seed, detail)


def require_texts(env: TextEnv, observation: str, seed: int) -> None:
    """Check the types of the texts and names of a freshly reset environment."""
    named: dict[str, tuple[str, ...]] = {"auxiliary_names": env.auxiliary_names or ("x",)}
    texts: dict[str, object] = {
        "reset()": observation,
        "system_prompt": env.system_prompt,
        "response_prefix": env.response_prefix,
        "difficulty_unit": env.difficulty_unit,
    }
    if supports(env, HasExpert):
        named["expert_actions()"] = env.expert_actions() or ("x",)
    if supports(env, HasRandomPlayer):
        named["random_actions()"] = actions = env.random_actions(random.Random(seed))
        texts["format_response()"] = env.format_response(actions)
    for name, names in named.items():
        if not names or not _is_strings(names) or not all(names):
            raise broken(_TYPES, seed, f"{name} is {names!r}, not a tuple of non-empty strings")
    if len(set(env.auxiliary_names)) < len(env.auxiliary_names):
        raise broken(_TYPES, seed, f"auxiliary_names repeats a name: {env.auxiliary_names!r}")
    for name, text in texts.items():
        if type(text) is not str:
            raise broken(_TYPES, seed, f"{name} is {text!r}, not a string")
    if type(env.is_deterministic) is not bool:
        raise broken(_TYPES, seed, f"is_deterministic is {env.is_deterministic!r}, not a bool")


def require_probabilities(env: TextEnv, seed: int) -> None:
    """Check that the floor and ceiling that are known are probabilities, in that order."""
    known: dict[str, float] = {}
    if supports(env, HasFloor):
        known["random"] = env.random_success_probability(seed)
    if supports(env, HasCeiling):
        known["optimal"] = env.optimal_success_probability(seed)
    for name, value in known.items():
        if type(value) is not float or not 0 <= value <= 1:
            detail = f"{name}_success_probability is {value!r}, not a float from 0 to 1"
            raise broken("floor and ceiling are probabilities", seed, detail)
    floor, ceiling = known.get("random", 0.0), known.get("optimal", 1.0)
    if floor > ceiling + 1e-9:
        detail = f"random play succeeds with {floor:g}, perfect play with {ceiling:g}"
        raise broken("nobody beats a perfect player", seed, detail)


def require_gold(gold: Mapping[str, Any], seed: int) -> None:
    """Check that `gold` survives a file: plain dicts, lists, strings, numbers."""
    try:
        is_plain = json.loads(json.dumps(gold, allow_nan=False)) == gold
    except (TypeError, ValueError):
        is_plain = False
    if not is_plain or type(gold) is not dict:
        detail = f"gold() is {gold!r}; use dicts with string keys, lists (not tuples), no NaN"
        raise broken("gold is plain JSON", seed, detail)


def _require_types(record: Step | Task, kind: type[Step | Task], seed: int) -> None:
    if type(record) is not kind:
        detail = f"it returned a {type(record).__name__}, not a {kind.__name__}"
        raise broken(_TYPES, seed, detail)
    for name, hint in _DECLARED[kind].items():
        value = getattr(record, name)
        if not _is_a(value, hint):
            detail = f"{kind.__name__}.{name} is {value!r}, a {type(value).__name__}"
            raise broken(_TYPES, seed, detail)


def _is_a(value: object, hint: Any) -> bool:
    """Return whether a value has exactly the declared type; for a mapping, a dict by strings."""
    if get_origin(hint) is Mapping:
        if type(value) is not dict or any(type(key) is not str for key in value):
            return False
        return hint.__args__[1] is not float or all(type(item) is float for item in value.values())
    if isinstance(hint, UnionType):
        return any(type(value) is kind for kind in hint.__args__)
    return type(value) is hint if isinstance(hint, type) else _is_strings(value)


def _is_strings(value: object) -> bool:
    """Return whether the value is exactly a `tuple[str, ...]`."""
    return type(value) is tuple and all(type(item) is str for item in value)
