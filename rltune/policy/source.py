"""Finding a model (shipped, in a folder, or on the hub) and reading it.

Nothing is unpickled, and no code of the model's folder runs. What is in the Hugging Face cache is
used without asking the hub again: an update there must not split the trials of a sweep.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers import PreTrainedTokenizerBase as Tokenizer
from transformers.utils import logging as transformers_logging

from rltune.errors import InputError, Problem
from rltune.policy.hub import hub_folder
from rltune.policy.model_folder import (
    SHIPPED,
    FolderFault,
    Stored,
    fault_problem,
    folder_problems,
    require_finite,
    require_floats,
    some,
    stored_tensors,
)
from rltune.spec.model_name import ALLOWED, name_problem


def read_model(model: str, env_kind: str) -> tuple[PreTrainedModel, Tokenizer]:
    """Return the network in float32, on the CPU, and its tokenizer.

    Args:
        model: `tiny`, a folder in transformers' format, or a hub id.
        env_kind: Chooses among the shipped tiny policies.

    Raises:
        InputError: There is no such model, or it cannot be loaded.

    """
    folder = SHIPPED / env_kind if model == "tiny" else Path(model)
    if not folder.is_dir():
        if problem := name_problem(model):
            raise InputError(problem)
        folder = hub_folder(model)
    if problems := list(folder_problems(folder, model)):
        raise InputError(problems)
    try:
        return _read(folder)
    except FolderFault as fault:
        raise InputError(fault_problem(model, fault)) from fault
    except (OSError, ValueError, ImportError) as error:
        raise InputError(load_problem(model, error)) from error


def read_tokenizer(
    model: str, env_kind: str, base: Path
) -> tuple[Tokenizer, GenerationConfig | None]:
    """Return a model's tokenizer and how it generates, without its weights.

    Raises:
        InputError: There is no such model, or its tokenizer cannot be read.

    """
    folder = SHIPPED / env_kind if model == "tiny" else base / model
    if not folder.is_dir():
        if problem := name_problem(model):
            raise InputError(problem)
        folder = hub_folder(model, with_weights=False)
    try:
        has_generation = (folder / "generation_config.json").exists()
        generation = GenerationConfig.from_pretrained(folder) if has_generation else None
        return _read_tokenizer(folder), generation
    except FolderFault as fault:
        raise InputError(fault_problem(model, fault)) from fault
    except (OSError, ValueError, ImportError) as error:
        raise InputError(load_problem(model, error)) from error


def load_problem(model: str, error: Exception, where: str = "policy.model") -> Problem:
    """Return the error of a library about a model as the problem of a config."""
    why = str(error).splitlines()[0] if str(error) else type(error).__name__
    what = f"{model!r} cannot be loaded: {why}"
    action = "Save it with transformers' save_pretrained, model and tokenizer."
    return Problem(where, what, ALLOWED, action)


def require_whole(folder: Path) -> PreTrainedModel:
    """Refuse a folder that a trial could not start with, reading one tensor at a time.

    Returns:
        The network, on the device `meta`: shapes without numbers.

    Raises:
        FolderFault: A file cannot be read, a tensor is missing, foreign or of another shape, or a
            number is not finite.
        ValueError: `transformers` raised it.

    """
    _read_tokenizer(folder)
    network = _read_network(folder, device_map="meta")
    for file in sorted({tensor.file for tensor in stored_tensors(folder).values()}):
        with safe_open(folder / file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118
                require_finite(name, weights.get_tensor(name))
    return network


def _read(folder: Path) -> tuple[PreTrainedModel, Tokenizer]:
    tokenizer = _read_tokenizer(folder)
    network = _read_network(folder)
    for name, parameter in network.named_parameters():
        require_finite(name, parameter)
    _require_tied(network)
    return network, tokenizer


def _require_tied(network: PreTrainedModel) -> None:
    """Refuse a separate head where the config ties it to the embeddings.

    `transformers` would silently train both, and another engine would serve the embeddings.
    """
    head, embeddings = network.get_output_embeddings(), network.get_input_embeddings()
    is_tied = getattr(network.config, "tie_word_embeddings", False) and network._tied_weights_keys
    if is_tied and head is not None and head.weight is not embeddings.weight:
        raise FolderFault(
            "the weights hold a head that is not the embeddings, to which config.json ties it",
            "Set tie_word_embeddings to false in config.json, or take the head out of the weights.",
        )


def _read_network(folder: Path, **place: Any) -> PreTrainedModel:
    """Return the network of a folder, if it has exactly the tensors of its kind of model.

    `transformers` knows which may be missing (tied ones) or left over. Others that are missing it
    fills with random numbers, which is refused here.
    """
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # its report of what is refused below
    try:
        network, info = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **place,
        )
    finally:
        transformers_logging.set_verbosity(level)
    _require_same_tensors(network, info, stored_tensors(folder))
    return network


def _require_same_tensors(
    network: PreTrainedModel, info: Mapping[str, Any], stored: Mapping[str, Stored]
) -> None:
    kind = type(network).__name__
    if missing := sorted(info["missing_keys"]):
        raise FolderFault(f"the weights lack {some(missing)} of {kind}")
    if unexpected := sorted(info["unexpected_keys"]):
        what = f"the weights hold {some(unexpected)} that {kind} does not have"
        raise FolderFault(what, "Save the model again as the class that config.json means.")
    if mismatched := sorted(info["mismatched_keys"]):
        name, saved, wanted = mismatched[0]
        what = f"{name} has the shape {tuple(saved)}, and {kind} needs {tuple(wanted)}"
        raise FolderFault(what, "Give config.json and weights of one model.")
    if errors := info["error_msgs"]:
        raise FolderFault(" ".join(str(errors[0]).split()).rstrip("."))
    prefix = f"{network.base_model_prefix}."
    own = {name for full in network.state_dict() for name in (full, full.removeprefix(prefix))}
    require_floats({name: tensor for name, tensor in stored.items() if name in own})


def _read_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer.

    Raises:
        FolderFault: Its file cannot be used; the library raises bare exceptions for it.

    """
    try:
        return _saved_tokenizer(folder)
    except (OSError, ImportError):
        raise
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise FolderFault(f"its tokenizer cannot be read ({why.rstrip('.')})") from error


def _saved_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer as it was saved.

    AutoTokenizer chooses the class by the model's type first, and Qwen2's class replaces the
    splitting rules of tokenizer.json by its own. So a folder that names the general class gets it.
    """
    config = folder / "tokenizer_config.json"
    if config.is_file():
        named = json.loads(config.read_text(encoding="utf-8")).get("tokenizer_class")
        if named in ("TokenizersBackend", "PreTrainedTokenizerFast"):
            return PreTrainedTokenizerFast.from_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
