"""The part of the contract that one record can break: types, and fields that must agree."""

import math
from dataclasses import fields
from typing import get_type_hints

from rltune_envs.base import Step, Task, TextEnv
from rltune_envs.errors import ContractError


def broken(clause: str, seed: int, detail: str) -> ContractError:
    """Return the error that names a broken clause and the seed that shows it."""
    return ContractError(f"{clause}: with seed {seed}, {detail}")


def require_step(step: Step, seed: int) -> None:
    """Check the types of one step, and its fields against each other."""
    _require_types(step, Step, seed)
    if not math.isfinite(step.reward):
        raise broken("rewards are finite", seed, f"one is {step.reward!r}")
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


def require_task(task: Task, seed: int) -> None:
    """Check the types of a task, its seed, and that there is something to do."""
    _require_types(task, Task, seed)
    if task.seed != seed:
        raise broken("task(seed) describes that seed", seed, f"it gave {task}")
    if task.optimal_actions < 1:
        detail = f"optimal_actions is {task.optimal_actions}"
        raise broken("no task is solved before it starts", seed, detail)


def require_texts(env: TextEnv, observation: str, seed: int) -> None:
    """Check the types of what an environment says about itself."""
    texts = {
        "reset()": observation,
        "system_prompt": env.system_prompt,
        "response_prefix": env.response_prefix,
        "format_response()": env.format_response(env.action_names[:1]),
    }
    for name, text in texts.items():
        if type(text) is not str:
            raise broken("types are as declared", seed, f"{name} is {text!r}, not a string")
    names = env.action_names
    if not _is_strings(names) or not all(names) or len(set(names)) < len(names) or not names:
        detail = f"action_names is {names!r}, not a tuple of different, non-empty strings"
        raise broken("types are as declared", seed, detail)
    floor = env.random_success_probability(seed)
    if type(floor) is not float or not 0 <= floor <= 1:
        raise broken("the random floor is a probability", seed, f"it is {floor!r}")


def _require_types(record: Step | Task, kind: type[Step | Task], seed: int) -> None:
    if type(record) is not kind:
        detail = f"a {type(record).__name__} came back where a {kind.__name__} is due"
        raise broken("types are as declared", seed, detail)
    hints = get_type_hints(kind)
    for field in fields(kind):
        value, hint = getattr(record, field.name), hints[field.name]
        is_right = type(value) is hint if isinstance(hint, type) else _is_strings(value)
        if not is_right:
            detail = f"{kind.__name__}.{field.name} is {value!r}, a {type(value).__name__}"
            raise broken("types are as declared", seed, detail)


def _is_strings(value: object) -> bool:
    """Whether the value is what the contract calls `tuple[str, ...]`."""
    return type(value) is tuple and all(type(item) is str for item in value)
