"""The models and adapters that a sweep names, looked at before anything starts."""

from collections.abc import Iterator
from pathlib import Path

from rltune.errors import Problem
from rltune.policy.hub import require_hub
from rltune.policy.model_folder import folder_problems, require_whole_folder
from rltune.spec.load import LoadedSweep
from rltune.spec.model_name import name_problem


def require_models(loaded: LoadedSweep, base: Path) -> None:
    """Refuse to start a sweep whose model is on a hub that cannot be reached, or not whole.

    Not a part of `require_usable`: a sweep can be checked and planned where its model is not, and
    the weights of a folder are read here.

    Raises:
        InputError: A model is neither here nor given by the hub, or its tensors cannot be used.

    """
    where = loaded.where("policy.model")
    hub, folders = _models(loaded, base)
    for name in hub:
        require_hub(name, where)
    for name in folders:
        require_whole_folder(base / name, name, where)


def _models(loaded: LoadedSweep, base: Path) -> tuple[list[str], list[str]]:
    """Return the models of a sweep that are not shipped: hub ids, and folders."""
    named = dict.fromkeys(condition.config["policy"]["model"] for condition in loaded.conditions)
    names = [name for name in named if name != "tiny"]
    folders = [name for name in names if (base / name).is_dir()]
    return [name for name in names if name not in folders], folders


def model_problems(loaded: LoadedSweep, base: Path) -> Iterator[Problem]:
    """Yield models that can be no hub ids, folders that are not whole, and missing adapters."""
    where = loaded.where("policy.model")
    hub, folders = _models(loaded, base)
    yield from filter(None, (name_problem(name, where) for name in hub))
    for name in folders:
        yield from folder_problems(base / name, name, where)
    for condition in loaded.conditions:
        lora = condition.config["policy"]["lora"]
        if lora["rank"] and lora["init"] != "default" and not (base / lora["init"]).is_dir():
            what = f"{lora['init']!r} is not a folder."
            allowed = "Allowed: default, or a folder with an adapter saved by peft."
            yield Problem(loaded.where("policy.lora.init"), what, allowed, "Check the path.")
