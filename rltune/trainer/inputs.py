"""Files that a config reads: data, custom code, model and adapter folders.

A file that custom code opens is seen only if it is named under `arguments`.
"""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rltune.spec.custom_code import import_paths
from rltune.spec.schema.advantage import CustomAdvantageConfig
from rltune.spec.schema.env import CustomEnvConfig
from rltune.spec.schema.env_taskset import TASKSET_ENV, taskset_module
from rltune.spec.schema.trial import TrialConfig
from rltune.spec.trial_reference import ABOUT, is_reference, model_path
from rltune.store.inputs import digests, files_in
from rltune.trainer.tasks import add_to_path, files_of
from rltune.trainer.user_code import installed_imports, module_files

_IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def inputs_of(config: TrialConfig, base: Path) -> dict[str, str]:
    """Return every file that a trial of a config reads -> its sha256.

    Relative paths refer to `base`, and custom modules are found there.
    """
    places = [*_data(config, base), *_models(config, base)]
    files = {file for place in places for file in files_in(place)}
    return digests(files | _code(config, base), base)


def task_inputs(config: TrialConfig, base: Path) -> dict[str, str]:
    """Return the files of which a config's frozen tasks are made -> sha256.

    All code counts: which module of it an environment imports is not asked for here.
    """
    files = {file for place in _data(config, base) for file in files_in(place)}
    return digests(files | _code(config, base), base)


def _data(config: TrialConfig, base: Path) -> Iterator[Path]:
    """Yield the files and folders of data that a config names."""
    yield from files_of(config.env, base).values()
    for text in _argument_texts(config):
        if (path := _named(text, base)) is not None:
            yield path


def _models(config: TrialConfig, base: Path) -> Iterator[Path]:
    """Yield the folders of the model and of the adapter, where they are folders.

    Of an export of a trial what was written about it is left out: it may be exported again.
    """
    named = ((config.policy.model, False), (config.policy.lora.init, True))
    for name, is_adapter in named:
        folder = model_path(name, base, adapter=is_adapter)
        if name in ("tiny", "default") or not folder.is_dir():
            continue
        if is_reference(name):
            yield from (file for file in files_in(folder) if file.name not in ABOUT)
        else:
            yield folder


def packages_of(config: TrialConfig, base: Path) -> set[str]:
    """Return the names of the installed distributions that the custom code of a config imports."""
    return installed_imports(_modules(config, base))


def _code(config: TrialConfig, base: Path) -> set[Path]:
    return module_files(_modules(config, base))


def _modules(config: TrialConfig, base: Path) -> list[str]:
    """Return the modules of custom code that a config names, once they can be found."""
    paths = [path for _, path in import_paths(config.model_dump())]
    paths += [text for text in _argument_texts(config) if _IMPORT_PATH.fullmatch(text)]
    if isinstance(config.env, CustomEnvConfig) and config.env.factory == TASKSET_ENV:
        paths.append(taskset_module(str(config.env.arguments.get("id", ""))))
    if paths:
        add_to_path(base)
    return [path.partition(":")[0] for path in paths]


def _argument_texts(config: TrialConfig) -> Iterator[str]:
    """Yield every text that a custom class or function is given."""
    if isinstance(config.env, CustomEnvConfig):
        yield from _texts(config.env.arguments)
    if isinstance(config.advantage, CustomAdvantageConfig):
        yield from _texts(config.advantage.arguments)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for item in value.values() for text in _texts(item))
    elif isinstance(value, list | tuple):
        yield from (text for item in value for text in _texts(item))


def _named(text: str, base: Path) -> Path | None:
    """Return the file or folder that an argument names; no folder as wide as `base` or a home."""
    if not text.strip() or "\0" in text:
        return None
    try:
        path = base / Path(text).expanduser()
        around = (base, Path.home(), Path(tempfile.gettempdir()))
        is_wide = any(place.resolve().is_relative_to(path.resolve()) for place in around)
        return path if path.exists() and not is_wide else None
    except (OSError, RuntimeError):  # too long for a name, or no such home
        return None
