"""Checks of a model folder by its small files and the headers of its weights.

No torch here, and no weights are read; `policy.source` compares names and shapes with the model,
and looks for numbers that are not finite.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltune.errors import Problem

if TYPE_CHECKING:
    from torch import Tensor

SHIPPED = Path(__file__).parent / "weights"
"""Has a folder with a tiny policy for each kind of env."""

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
AGAIN = "Copy or download the folder again, whole."
_LFS = b"version https://git-lfs"
_TOKENIZERS = ("tokenizer.json", "*.model", "*.spm", "*.tiktoken", "vocab*")
_SETTINGS = (
    *("generation_config.json", "tokenizer_config.json", "special_tokens_map.json"),
    "added_tokens.json",
)
_TEXTS = ("*.jinja", "merges.txt")
_FLOATS = ("F16", "BF16", "F32", "F64")


class FolderFault(Exception):
    """A fault of a file in a folder; the text begins with the file's name.

    Args:
        what: One sentence without its full stop.
        action: What to do.

    """

    def __init__(self, what: str, action: str = AGAIN) -> None:
        super().__init__(what)
        self.action = action


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor as the header of its file describes it."""

    file: str  # name of the file
    dtype: str  # in the words of safetensors (`BF16`)
    shape: tuple[int, ...]  # of the tensor


def folder_problems(folder: Path, name: str, where: str = "policy.model") -> Iterator[Problem]:
    """Yield why a folder cannot be loaded as a model, each file once.

    Args:
        folder: The folder.
        name: What the config calls it.
        where: File and key of that name.

    """
    for check in (_require_config, _require_tokenizer, _require_settings, stored_tensors):
        try:
            check(folder)
        except FolderFault as fault:
            yield fault_problem(name, fault, where)


def fault_problem(name: str, fault: FolderFault, where: str = "policy.model") -> Problem:
    """Return a fault as the problem of a config."""
    return Problem(where, f"{name!r} cannot be loaded: {fault}.", action=fault.action)


def stored_tensors(folder: Path) -> dict[str, Stored]:
    """Return the tensors of a folder by name, as the headers of its files describe them.

    Raises:
        FolderFault: A file is missing, truncated or not a safetensors file, or index and files do
            not agree.

    """
    if (folder / WEIGHTS).exists() or not (folder / INDEX).exists():
        return read_header(folder / WEIGHTS)
    named = read_json(folder / INDEX).get("weight_map")
    if not isinstance(named, dict) or not all(isinstance(f, str) for f in named.values()):
        raise FolderFault(f"{INDEX} has no weight_map from tensors to files")
    tensors: dict[str, Stored] = {}
    for file in sorted(set(named.values())):
        if Path(file).name != file or not (folder / file).is_file():
            raise FolderFault(f"{INDEX} names {file}, which is missing")
        tensors |= read_header(folder / file)
    for name, file in named.items():
        if name not in tensors or tensors[name].file != file:
            raise FolderFault(f"{INDEX} says that {name} is in {file}, which does not hold it")
    return tensors


def read_header(path: Path) -> dict[str, Stored]:
    """Return the tensors of a safetensors file.

    Raises:
        FolderFault: It is missing, empty, a pointer, truncated, or not such a file.

    """
    from safetensors import SafetensorError, safe_open

    _require_content(path)
    try:
        with safe_open(path, framework="np") as file:
            parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {
                name: Stored(path.name, part.get_dtype(), tuple(part.get_shape()))
                for name, part in parts.items()
            }
    except SafetensorError as error:
        raise FolderFault(f"{path.name} is truncated or damaged ({error})") from error


def read_json(path: Path) -> Mapping[str, Any]:
    """Return the object that a JSON file holds.

    Raises:
        FolderFault: It is missing, empty, a pointer, or holds no JSON object.

    """
    _require_content(path)
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FolderFault(f"{path.name} is truncated or damaged ({error})") from error
    if not isinstance(value, dict):
        raise FolderFault(f"{path.name} holds no JSON object")
    return value


def require_floats(tensors: Mapping[str, Stored]) -> None:
    """Refuse weights that are not plain floating-point numbers.

    Raises:
        FolderFault: It names the first such tensor and its type.

    """
    for name, tensor in tensors.items():
        if tensor.dtype not in _FLOATS:
            raise FolderFault(
                f"{tensor.file} holds {name} in {tensor.dtype}, and weights are one of "
                f"{', '.join(_FLOATS)}",
                "Save the model with plain weights, not quantised ones.",
            )


def require_finite(name: str, tensor: "Tensor") -> None:
    """Refuse a tensor of a file that holds NaN or infinity.

    Raises:
        FolderFault: It does, with their number.

    """
    if n := int((~tensor.isfinite()).sum()):
        what = f"{name} holds {n} number{'s that are' if n > 1 else ' that is'} not finite"
        raise FolderFault(what, "Give weights of a training that did not diverge.")


def some(names: list[str]) -> str:
    """Return the number of names, and the first of them."""
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"{len(names)} tensor{'s' if len(names) > 1 else ''} ({shown})"


def _require_content(path: Path) -> None:
    if not path.is_file():
        others = [name for name in ("pytorch_model.bin",) if (path.parent / name).exists()]
        if path.name == WEIGHTS and others:
            what = f"{WEIGHTS} is missing, and {others[0]} is a pickle, which can run code"
            raise FolderFault(what, "Save the weights in safetensors.")
        if path.name == WEIGHTS and (shards := sorted(path.parent.glob("model-*.safetensors"))):
            raise FolderFault(f"{INDEX} is missing, and {shards[0].name} is a part of the weights")
        raise FolderFault(f"{path.name} is missing")
    try:
        with path.open("rb") as file:
            start = file.read(len(_LFS))
    except OSError as error:
        raise FolderFault(f"{path.name} cannot be read ({error.strerror or error})") from error
    if not start:
        raise FolderFault(f"{path.name} is empty")
    if start == _LFS:
        what = f"{path.name} is a Git LFS pointer, not the file that it stands for"
        raise FolderFault(what, "Run `git lfs pull` in the folder.")


def _require_config(folder: Path) -> None:
    if (folder / "adapter_config.json").exists():
        raise FolderFault(
            "it holds adapter_config.json, so it is an adapter, or a model with one",
            "Give the base model's folder, and the adapter as policy.lora.init.",
        )
    config = read_json(folder / "config.json")
    if not isinstance(config.get("model_type"), str):
        raise FolderFault("config.json names no model_type")
    _require_ends("config.json", config)
    if config.get("quantization_config"):
        raise FolderFault(
            "config.json has a quantization_config, and only plain weights can be trained",
            "Save the model with plain weights, not quantised ones.",
        )


def _require_tokenizer(folder: Path) -> None:
    files = [path for pattern in _TOKENIZERS for path in sorted(folder.glob(pattern))]
    if not files:
        raise FolderFault("tokenizer.json is missing", "Save the model's tokenizer beside it.")
    for path in files:
        _require_content(path)
    if files[0].name == "tokenizer.json" and "model" not in read_json(files[0]):
        raise FolderFault("tokenizer.json defines no tokenizer (it has no key 'model')")


def _require_settings(folder: Path) -> None:
    for name in _SETTINGS:
        if (folder / name).exists():
            _require_ends(name, read_json(folder / name))
    for path in (path for pattern in _TEXTS for path in sorted(folder.glob(pattern))):
        _require_content(path)


def _require_ends(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse ends of a response that are not ids."""
    ends = settings.get("eos_token_id")
    for end in ends if isinstance(ends, list) else [ends]:
        if type(end) not in (int, type(None)):
            raise FolderFault(
                f"{name} has the eos_token_id {ends!r}, and token ids are whole numbers"
            )
