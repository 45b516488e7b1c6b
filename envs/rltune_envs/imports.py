"""Load a custom class or function by its import path, `my_pkg.my_mod:MyEnv`."""

import importlib
from collections.abc import Callable
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from rltune_envs.errors import ImportPathError
from rltune_envs.guard_worker import exit_raises


def load_object(path: str) -> Callable[..., Any]:
    """Import what a path names.

    Args:
        path: `package.module:Name`.

    Raises:
        ImportPathError: The path is malformed, there is no such module, the module itself fails,
            it has no such name, or that name cannot be called.

    """
    module_name, colon, name = path.partition(":")
    words = [*module_name.split("."), name]
    if not colon or not all(word.isidentifier() for word in words):
        raise ImportPathError(f"{path!r} is not an import path; write it as my_pkg.my_mod:MyEnv")
    module = _module(path, module_name)
    if not hasattr(module, name):
        public = sorted(word for word in vars(module) if not word.startswith("_"))
        near = get_close_matches(name, public, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(public) or 'nothing'}"
        raise ImportPathError(f"{path!r}: the module {module_name!r} has no {name!r}; {hint}")
    loaded = getattr(module, name)
    if not callable(loaded):
        raise ImportPathError(f"{path!r} is {loaded!r:.80}; a class or a function is needed")
    return loaded  # type: ignore[no-any-return]


def _module(path: str, name: str) -> ModuleType:
    try:
        with exit_raises():
            return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a script may call sys.exit at its top level
        if isinstance(error, ModuleNotFoundError) and _is_part(error.name, name):
            raise ImportPathError(
                f"{path!r}: there is no module {error.name!r}; install its package, or add its "
                "folder to PYTHONPATH"
            ) from error
        raise ImportPathError(
            f"{path!r}: importing {name!r} raised {type(error).__name__}: {error}"
        ) from error


def _is_part(missing: str | None, name: str) -> bool:
    """Return whether the missing module is the wanted one or its package, not one it imports."""
    return missing is not None and f"{name}.".startswith(f"{missing}.")
