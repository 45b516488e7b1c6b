"""The model that training began with, as an export names it: by no path of this machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from rltune.policy.hub import cached_folder
from rltune.policy.model_folder import SHIPPED
from rltune.spec.schema.trial import TrialConfig
from rltune.spec.trial_reference import PREFIX, is_reference, model_path
from rltune.store.files import sha256_file

UNKNOWN = {"license": "unknown"}
_LICENSE_KEYS = ("license", "license_name", "license_link")
_SHIPPED_LICENSE = {"license": "apache-2.0"}  # that of the package


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A base, by a name that means the same on another machine."""

    name: str  # hub id, trial:RUN/TRIAL@STEP, a relative path, or the last part of an absolute one
    how: str  # how to get it, in a sentence; empty for a hub id
    license: Mapping[str, str]  # metadata of a model card; `unknown` where the base does not say
    files: Mapping[str, str] = field(default_factory=dict)  # weights of a folder: name -> sha256

    @property
    def is_hub(self) -> bool:
        """Whether it is on the Hugging Face hub."""
        return not self.how


def base_model(config: TrialConfig, base: Path) -> BaseModel:
    """Return the model that a config begins with.

    Args:
        config: Resolved config.
        base: Folder to which relative paths refer.

    """
    given = config.policy.model
    if given == "tiny":
        folder, name = SHIPPED / config.env.kind, f"rltune/policy/weights/{config.env.kind}"
        how = f"BASE_FOLDER is {name}, where the package rltune is installed."
        return BaseModel(name, how, _SHIPPED_LICENSE, _weights(folder))
    folder = model_path(given, base)
    if not folder.is_dir():
        cached = cached_folder(given)
        return BaseModel(given, "", UNKNOWN if cached is None else license_of(cached))
    name = portable_name(given, base)
    how = f"BASE_FOLDER is a copy of the folder {name!r} that this trial began with."
    if is_reference(given):
        trial, _, step = folder.name.rpartition("@")
        how = f"BASE_FOLDER is made by rltune model {trial} --checkpoint {step} --out BASE_FOLDER"
        how += ", with --merge where that trial has an adapter."
    return BaseModel(name, how, license_of(folder), _weights(folder))


def portable_name(given: str, base: Path, *, adapter: bool = False) -> str:
    """Return a model or adapter as a config names it, without a path of this machine.

    Args:
        given: A hub id, a folder or a reference to a trial.
        base: Folder to which relative paths refer.
        adapter: Whether `policy.lora.init` names it.

    """
    if is_reference(given):
        folder = model_path(given, base, adapter=adapter)
        return f"{PREFIX}{folder.parents[1].name}/{folder.name.removesuffix('-adapter')}"
    return Path(given).name if Path(given).is_absolute() else given


def license_of(folder: Path) -> Mapping[str, str]:
    """Return the licence in the metadata of a folder's README.md; `unknown` where there is none."""
    try:
        text = (folder / "README.md").read_text(encoding="utf-8")
        head = yaml.safe_load(text.split("---\n", 2)[1]) if text.startswith("---\n") else None
    except (OSError, UnicodeDecodeError, IndexError, yaml.YAMLError):
        return UNKNOWN
    if not isinstance(head, dict) or not head.get("license"):
        return UNKNOWN
    return {key: str(head[key]) for key in _LICENSE_KEYS if head.get(key)}


def _weights(folder: Path) -> Mapping[str, str]:
    return {path.name: sha256_file(path) for path in sorted(folder.glob("*.safetensors"))}
