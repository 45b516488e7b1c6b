"""Where a model is: shipped, in a folder, or on the hub; and reading it from there.

Nothing is unpickled and no code of the model's folder runs. What is in the Hugging Face cache is
used as it is and not looked up again: a model that is updated on the hub must not part the trials
of a sweep.
"""

import json
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers import PreTrainedTokenizerBase as Tokenizer

from rltune.errors import InputError, Problem
from rltune.policy.hub import hub_folder
from rltune.policy.tiny import SHIPPED
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
    try:
        return _read(str(folder))
    except (OSError, ValueError, ImportError) as error:
        raise InputError(
            Problem(
                "policy.model",
                f"{model!r} cannot be loaded: {str(error).splitlines()[0]}",
                ALLOWED,
                "Save it with transformers' save_pretrained, model and tokenizer.",
            )
        ) from error


def _read(source: str) -> tuple[PreTrainedModel, Tokenizer]:
    tokenizer = _read_tokenizer(source)
    network = AutoModelForCausalLM.from_pretrained(
        source,
        dtype=torch.float32,
        use_safetensors=True,
        trust_remote_code=False,
        local_files_only=True,
    )
    return network, tokenizer


def _read_tokenizer(source: str) -> Tokenizer:
    """Load the tokenizer as it was saved.

    AutoTokenizer picks the class by the model's type first, and Qwen2's class puts its own
    splitting rules in place of those in tokenizer.json. A folder that names the general class means
    it.
    """
    config = Path(source) / "tokenizer_config.json"
    if config.is_file():
        named = json.loads(config.read_text(encoding="utf-8")).get("tokenizer_class")
        if named in ("TokenizersBackend", "PreTrainedTokenizerFast"):
            return PreTrainedTokenizerFast.from_pretrained(source)
    return AutoTokenizer.from_pretrained(source, trust_remote_code=False, local_files_only=True)
