"""Checks that a saved adapter is a plain LoRA of this base, by its config and without torch.

An adapter changes one base. On another base of equal shapes it is another policy, without an error.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rltune.errors import Problem
from rltune.policy.model_folder import (
    FolderFault,
    Stored,
    read_header,
    read_json,
    require_floats,
    stored_tensors,
)
from rltune.spec.schema.trial import LoraConfig

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
CARD = "rltune.json"  # the facts of an export by `rltune model`
_ALLOWED = (
    "Allowed: default, or a folder with adapter_config.json and adapter_model.safetensors, as peft "
    "saves a plain LoRA adapter."
)
_SAVE_AGAIN = "Save the adapter again in this format, and set policy.lora to its values."
_ASIDE = frozenset(
    {
        *("auto_mapping", "base_model_name_or_path", "revision", "inference_mode", "task_type"),
        *("peft_version", "lora_dropout", "runtime_config", "megatron_core", "qalora_group_size"),
        *("r", "lora_alpha", "init_lora_weights", "eva_config"),
        # The tensors show which layers are adapted.
        *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
    }
)
"""Keys of adapter_config.json that are checked elsewhere, or do not change the computation."""

_PLAIN: Mapping[str, tuple[Any, ...]] = {"peft_type": ("LORA",), "bias": ("none",)}
"""Keys and their values in a plain adapter; every other key must be off: null, false or empty."""

_KEEPS_BASE = (True, False, None, "gaussian", "orthogonal", "eva")
"""Values of init_lora_weights that leave the base unchanged; others change its weights (pissa,
olora, loftq, corda, lora_ga), or are unknown."""


def require_adapter(folder: Path, lora: LoraConfig, *, model: str) -> dict[str, Stored]:
    """Refuse an adapter that does not compute what the config says.

    Args:
        folder: As peft saves it.
        lora: The wanted adapter.
        model: Folder or hub id of its base; empty where that has no name.

    Returns:
        Its tensors, as the header of its file describes them.

    Raises:
        FolderFault: A file is damaged, the adapter is not a plain LoRA, its rank or alpha differs,
            or it was made for another base.

    """
    if not (folder / WEIGHTS).is_file() and (folder / "adapter_model.bin").exists():
        raise FolderFault(
            "adapter_model.bin is a pickle, which can run code when it is read", _SAVE_AGAIN
        )
    saved = read_json(folder / CONFIG)
    _require_plain(saved)
    for name, key, wanted in (("r", "rank", lora.rank), ("lora_alpha", "alpha", lora.alpha)):
        if saved.get(name) != wanted:
            what = f"its {name} is {saved.get(name)}, and policy.lora.{key} is {wanted}"
            raise FolderFault(what, _SAVE_AGAIN)
    _require_base(saved.get("base_model_name_or_path"), model, folder)
    tensors = read_header(folder / WEIGHTS)
    require_floats(tensors)
    return tensors


def adapter_problem(name: str, fault: FolderFault, where: str = "policy.lora.init") -> Problem:
    """Return a fault as the problem of a config."""
    return Problem(where, f"{name!r} cannot be used: {fault}.", _ALLOWED, fault.action)


def _require_plain(saved: Mapping[str, Any]) -> None:
    """Refuse settings that the layers here do not compute, also those of a later peft."""
    init = saved.get("init_lora_weights", True)
    if init not in _KEEPS_BASE:
        raise FolderFault(
            f"its init_lora_weights is {init!r}: such an adapter belongs to a base whose weights "
            "were changed when it was made, and on the plain base it is another policy",
            "Save it with peft's path_initial_model_for_weight_conversion, which makes it a plain "
            "LoRA, or merge it and give the folder as policy.model. If policy.model is the changed "
            f"base, set init_lora_weights to true in {CONFIG}.",
        )
    for name, value in saved.items():
        is_off = value in _PLAIN[name] if name in _PLAIN else not value
        if name not in _ASIDE and not is_off:
            raise FolderFault(f"its {name} is {value!r}, which is not supported", _SAVE_AGAIN)


def _require_base(made_for: object, model: str, folder: Path) -> None:
    """Refuse an adapter that names another base; one without a name cannot be checked."""
    if not isinstance(made_for, str) or not made_for or not model:
        return
    same = made_for == model or _has_recorded_weights(folder, Path(model))
    if same is None:
        same = _same_weights(Path(made_for), Path(model))
    if same is None:
        same = _same_name(made_for, model)
    if not same:
        raise FolderFault(
            f"it was made for the base model {made_for!r}, and policy.model is {model!r}",
            f"Give that base. If it is the same model, name it so in {CONFIG}: "
            f'"base_model_name_or_path": "{model}".',
        )


def _has_recorded_weights(adapter: Path, model: Path) -> bool | None:
    """Return whether a folder has the weights that an exported adapter's card names by digest.

    None where no card does, or where the files are called otherwise.
    """
    try:
        recorded = read_json(adapter / CARD).get("base", {}).get("files", {})
    except (FolderFault, AttributeError):
        return None
    if not recorded or {path.name for path in model.glob("*.safetensors")} != set(recorded):
        return None
    return all(_digest(model / name) == digest for name, digest in recorded.items())


def _same_weights(one: Path, other: Path) -> bool | None:
    """Return whether two folders hold the same weights; None where unknown.

    Weights that are split into files otherwise are not compared.
    """
    if not (one.is_dir() and other.is_dir()):
        return None
    if one.samefile(other):
        return True
    try:
        ours, theirs = stored_tensors(one), stored_tensors(other)
    except FolderFault:
        return None
    if {n: t.shape for n, t in ours.items()} != {n: t.shape for n, t in theirs.items()}:
        return False
    if ours != theirs:
        return None
    return all(
        _digest(one / file) == _digest(other / file) for file in {t.file for t in ours.values()}
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _same_name(one: str, other: str) -> bool:
    """Return whether two names may mean one model; owners count where both have one."""
    (owner, name), (other_owner, other_name) = _owner_and_name(one), _owner_and_name(other)
    is_owner = owner is None or other_owner is None or owner == other_owner
    return is_owner and name == other_name


def _owner_and_name(model: str) -> tuple[str | None, str]:
    """Return `Qwen`, `Qwen2.5-3B` of a hub id or a folder of the hub's cache; else None and a name.

    Upper and lower case count as equal.
    """
    parts = [part for part in model.casefold().replace("\\", "/").split("/") if part]
    for part in parts:
        if part.startswith("models--") and part.count("--") == 2:
            _, owner, name = part.split("--")
            return owner, name
    is_id = len(parts) == 2 and not model.startswith(("/", ".", "~")) and not Path(model).exists()
    return (parts[0] if is_id else None), (parts[-1] if parts else "")
