"""The models, adapters and engines that a sweep names, looked at before anything starts."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rltune.errors import InputError, Problem, SpecError
from rltune.policy.adapter_folder import adapter_problem, require_adapter
from rltune.policy.hub import require_hub
from rltune.policy.model_folder import SHIPPED, FolderFault, folder_problems
from rltune.policy.read_folder import Reading, require_readable
from rltune.remote.probe import require_faithful
from rltune.remote.session import Session, require_base
from rltune.rollout.vllm_setup import INSTALL, vllm_version
from rltune.spec.load import LoadedSweep
from rltune.spec.model_name import name_problem, service_model
from rltune.spec.schema.trial import LoraConfig
from rltune.spec.trial_reference import is_reference, model_path, require_reference

TINY = "tiny"


def require_models(loaded: LoadedSweep, base: Path) -> None:
    """Refuse to start a sweep whose models cannot be had, are not whole, or do not fit an adapter.

    Not a part of `require_usable`: a sweep can be checked and planned where its model is not, and
    the weights of folders are read here. Shipped policies are whole. A training service is probed.

    Raises:
        InputError: A model is neither here nor given by the hub, or it or an adapter cannot be
            used; a training service does not do what training relies on.

    """
    where = loaded.where("policy.model")
    readings: dict[Reading, None] = {}
    services: dict[tuple[str, int, float], None] = {}
    for condition in loaded.conditions:
        name, folder = _model(condition.config, base)
        if condition.config["trainer"]["backend"] == "tinker":
            _require_remote(condition.config, folder, where)
            services[_probe_of(condition.config)] = None
            continue
        lora = _saved_adapter(condition.config, base)
        if folder is None:
            require_hub(name, where)
        elif name != TINY or lora:
            text = lora.model_dump_json() if lora else ""
            readings[Reading(str(folder), name, where, text)] = None
    require_readable(list(readings))
    for name, rank, timeout_s in services:
        session = Session(name, timeout_s=timeout_s)
        require_faithful(session, rank=rank, where=loaded.where("trainer.backend"))


def _probe_of(config: Mapping[str, Any]) -> tuple[str, int, float]:
    """Return what a probe of a condition's service depends on."""
    name = service_model(config["policy"]["model"], config["env"]["kind"])
    return name, config["policy"]["lora"]["rank"], config["trainer"]["timeout_s"]


def _require_remote(config: Mapping[str, Any], folder: Path | None, where: str) -> None:
    """Refuse a base that the service does not offer, or whose tokenizer cannot be had here."""
    name = config["policy"]["model"]
    require_base(service_model(name, config["env"]["kind"]), where)
    if folder is None:
        require_hub(name, where, with_weights=False)


def model_problems(loaded: LoadedSweep, base: Path) -> Iterator[Problem]:
    """Yield models that can be no hub ids, folders that are not whole, and unusable adapters."""
    where, where_init = loaded.where("policy.model"), loaded.where("policy.lora.init")
    for condition in loaded.conditions:
        if problems := _reference_problems(condition.config, base, where, where_init):
            yield from problems
            continue
        name, folder = _model(condition.config, base)
        if folder is not None:
            yield from folder_problems(folder, name, where) if name != TINY else ()
        elif is_reference(name):
            folder = model_path(name, base)  # it is exported when the sweep starts
        elif problem := name_problem(name, where):
            yield problem
        if lora := _saved_adapter(condition.config, base):
            init = condition.config["policy"]["lora"]["init"]
            yield from _adapter_problems(lora, init, str(folder or name), where_init)


def _adapter_problems(lora: LoraConfig, init: str, model: str, where: str) -> Iterator[Problem]:
    if is_reference(init) and not Path(lora.init).is_dir():
        return  # as above
    if not Path(lora.init).is_dir():
        allowed = "Allowed: default, or a folder with an adapter saved by peft."
        yield Problem(where, f"{init!r} is not a folder.", allowed, "Check the path.")
        return
    try:
        require_adapter(Path(lora.init), lora, model=model)
    except FolderFault as fault:
        yield adapter_problem(init, fault, where)


def _reference_problems(
    config: Mapping[str, Any], base: Path, where: str, where_init: str
) -> list[Problem]:
    """Return why references to trials mean no checkpoint, or no adapter."""
    policy = config["policy"]
    named = [(policy["model"], where, False)]
    if policy["lora"]["rank"]:
        named.append((policy["lora"]["init"], where_init, True))
    problems: list[Problem] = []
    for name, place, is_adapter in named:
        if is_reference(name):
            try:
                require_reference(name, base, adapter=is_adapter, where=place)
            except InputError as error:
                problems += error.problems
    return problems


def _model(config: Mapping[str, Any], base: Path) -> tuple[str, Path | None]:
    """Return a model's name and its folder; None for a hub id."""
    name: str = config["policy"]["model"]
    folder = SHIPPED / config["env"]["kind"] if name == TINY else model_path(name, base)
    return name, folder if name == TINY or folder.is_dir() else None


def _saved_adapter(config: Mapping[str, Any], base: Path) -> LoraConfig | None:
    """Return the adapter that a condition starts from, its folder as a whole path."""
    lora = LoraConfig.model_validate(config["policy"]["lora"])
    if not lora.rank or lora.init == "default":
        return None
    return lora.model_copy(update={"init": str(model_path(lora.init, base, adapter=True))})


def engine_problem(loaded: LoadedSweep) -> Problem | None:
    """Return what the engine of a sweep lacks here; None when nothing. vLLM is not loaded."""
    engines = {condition.config["rollout"]["engine"] for condition in loaded.conditions}
    if "vllm" not in engines or vllm_version() is not None:
        return None
    what = "vllm is not installed in this environment."
    return Problem(loaded.where("rollout.engine"), what, action=f"{INSTALL}; see docs/engines.md.")


def require_engine(loaded: LoadedSweep) -> None:
    """Refuse to start a sweep whose engine is not installed; a check does not need it.

    Raises:
        SpecError: It is not.

    """
    if problem := engine_problem(loaded):
        raise SpecError([problem])
