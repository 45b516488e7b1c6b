"""Errors raised by a custom environment are reported as the user's, with its class and line."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rltune.errors import InputError, Problem, RltuneError
from rltune.spec.schema.env import CustomEnvConfig, Env
from rltune_envs.errors import CustomCodeError

_OURS = ("rltune", "rltune_envs")


@contextmanager
def naming_custom_env(env: Env) -> Iterator[None]:
    """Turn what a custom environment raises into one error that names its class and line.

    Errors from elsewhere, or from a shipped environment, pass unchanged.

    Raises:
        InputError: The environment raised something, or code that it called.

    """
    try:
        yield
    except RltuneError:
        raise
    except CustomCodeError as error:
        raise InputError(_problem(env, f"{error.cause}.")) from error
    except Exception as error:  # whatever a custom class raises
        place = custom_place(error, env)
        if not place:
            raise
        text = ": ".join([type(error).__name__, *filter(None, [" ".join(str(error).split())])])
        raise InputError(_problem(env, f"it raised {text} ({place}).")) from error


def _problem(env: Env, what: str) -> Problem:
    factory = env.factory if isinstance(env, CustomEnvConfig) else env.kind
    action = "Repair it, and give the same command again."
    return Problem(f"env {factory}", what, action=action)


def custom_place(error: Exception, env: Env) -> str:
    """Return where in the code of a user's environment an exception came from.

    `FILE:LINE, in NAME` is the deepest place in the package of the environment, or in its module
    where that is in no package. Empty where its code was not running.
    """
    if not isinstance(env, CustomEnvConfig):
        return ""
    roots = _roots(env.factory.partition(":")[0])
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename).resolve()
        if any(file.is_relative_to(root) for root in roots):
            return f"{frame.filename}:{frame.lineno}, in {frame.name}"
    return ""


def _roots(module: str) -> list[Path]:
    """Return the file or the folders that hold a module and those that belong to it."""
    top = sys.modules.get(module.partition(".")[0])
    if top is None or top.__name__ in _OURS:
        return []
    paths = [*getattr(top, "__path__", ())] or [top.__file__ or ""]
    return [Path(path).resolve() for path in paths if path]
