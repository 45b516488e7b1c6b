"""Write a policy as a folder that transformers, peft and vLLM load by themselves.

A folder is proved before it is handed over: it is read again, and holds the same bits.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, GenerationConfig, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer
from transformers.utils import logging as transformers_logging

from rltune.errors import Problem, StoreError
from rltune.policy.adapter_folder import CONFIG, require_adapter
from rltune.policy.adapter_folder import WEIGHTS as ADAPTER
from rltune.policy.load import Policy, tensors_digest
from rltune.policy.lora import trained_parameters
from rltune.policy.model_folder import FolderFault
from rltune.policy.serve import peft_name
from rltune.policy.source import read_model
from rltune.spec.schema.trial import LoraConfig

TOKENIZER_CODE = "tokenizer.py"
_TOKENIZER_CLASS = "ModelTokenizer"
_PLAIN_TOKENIZER = f'''"""The tokenizer of tokenizer.json, as it is."""

from transformers import PreTrainedTokenizerFast


class {_TOKENIZER_CLASS}(PreTrainedTokenizerFast):
    """Reads tokenizer.json, and changes none of its rules."""
'''


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the policy was sampled; becomes generation_config.json."""

    temperature: float  # 0 is greedy
    max_new_tokens: int  # longest response


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    kind: str  # `model`, or `adapter`
    parameters: int  # numbers in the weights file
    weights_sha256: str  # digest of these tensors, by name, shape and bytes


def write_model(policy: Policy, folder: Path, sampling: Sampling) -> Exported:
    """Write a policy without adapters as a model folder: weights in float32, config, tokenizer.

    Args:
        policy: Its adapters, if it had any, are merged.
        folder: An empty folder.
        sampling: For generation_config.json.

    Raises:
        StoreError: What was written is not read as what was meant.

    """
    transformers_logging.disable_progress_bar()
    policy.model.config.dtype = "float32"
    policy.model.generation_config = _generation(policy, sampling)
    policy.model.save_pretrained(folder)
    _make_readable(folder)
    _write_tokenizer(policy.tokenizer, folder)
    again, _ = read_model(str(folder), "")
    digest = _all_digest(again)
    _require_same(digest, _all_digest(policy.model), folder)
    return Exported("model", sum(p.numel() for p in again.parameters()), digest)


def write_adapter(
    policy: Policy, folder: Path, lora: LoraConfig, sampling: Sampling, *, base: str
) -> Exported:
    """Write the adapter of a policy as a peft folder, with the tokenizer.

    Args:
        policy: With an adapter.
        folder: An empty folder.
        lora: Of the adapter.
        sampling: For generation_config.json.
        base: Folder or hub id of the model that the adapter changes.

    Raises:
        StoreError: What was written is not read as what was meant.

    """
    from peft import LoraConfig as PeftConfig

    tensors = {
        peft_name(name): p.detach().cpu().contiguous()
        for name, p in trained_parameters(policy.model).items()
    }
    PeftConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(lora.targets),
        task_type="CAUSAL_LM",
        base_model_name_or_path=base,
        inference_mode=True,
    ).save_pretrained(folder)
    _sort_targets(folder / CONFIG)
    save_file(tensors, folder / ADAPTER, metadata={"format": "pt"})
    _make_readable(folder)
    _generation(policy, sampling).save_pretrained(folder)
    _write_tokenizer(policy.tokenizer, folder)
    try:
        require_adapter(folder, lora, model=base)
    except FolderFault as fault:
        raise StoreError(Problem(str(folder), f"{fault}.", action=fault.action)) from fault
    digest = tensors_digest(load_file(folder / ADAPTER))
    _require_same(digest, tensors_digest(tensors), folder)
    return Exported("adapter", sum(t.numel() for t in tensors.values()), digest)


def _generation(policy: Policy, sampling: Sampling) -> GenerationConfig:
    """Return the settings with which `generate` samples as the gate did."""
    drawn = {"do_sample": True, "temperature": sampling.temperature, "top_p": 1.0, "top_k": 0}
    ends = list(policy.end_ids)
    return GenerationConfig(
        bos_token_id=getattr(policy.model.config, "bos_token_id", None),
        eos_token_id=ends if len(ends) > 1 else ends[0],
        pad_token_id=policy.pad_id,
        max_new_tokens=sampling.max_new_tokens,
        **(drawn if sampling.temperature > 0 else {"do_sample": False}),
    )


def _sort_targets(path: Path) -> None:
    """Order the layers, of which peft writes a set: two exports have equal checksums."""
    config = json.loads(path.read_text(encoding="utf-8"))
    config["target_modules"].sort()
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _make_readable(folder: Path) -> None:
    """Give weights, which safetensors writes for their owner alone, the mode of other files."""
    mode = min(path.stat().st_mode for path in folder.glob("*config.json"))
    for path in folder.glob("*.safetensors"):
        path.chmod(mode)


def _write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the tokenizer so that plain AutoTokenizer reads it as it is.

    For some types of model AutoTokenizer takes that type's own class, which replaces the splitting
    rules of tokenizer.json, whatever class the folder names; not where the folder names code. So a
    tokenizer of its own gets a line of code, which nobody has to trust for that.
    """
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    for key in ("is_local", "local_files_only"):  # how it was read here
        config.pop(key, None)
    if config.get("tokenizer_class") == "TokenizersBackend":  # a name that transformers 4 lacks
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    if _is_read(tokenizer, folder):
        return
    code = Path(TOKENIZER_CODE).stem
    config["auto_map"] = {"AutoTokenizer": [None, f"{code}.{_TOKENIZER_CLASS}"]}
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / TOKENIZER_CODE).write_text(_PLAIN_TOKENIZER, encoding="utf-8")
    if not _is_read(tokenizer, folder):
        what = "AutoTokenizer reads another tokenizer from it than the policy's."
        raise StoreError(Problem(str(folder), what, action="Please report this with the model."))


def _is_read(tokenizer: Tokenizer, folder: Path) -> bool:
    """Return whether plain AutoTokenizer gives this tokenizer."""
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        again = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    finally:
        transformers_logging.set_verbosity(level)
    return _definition(again) == _definition(tokenizer)


def _definition(tokenizer: Tokenizer) -> tuple[object, ...]:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    whole = sorted(tokenizer.get_vocab().items()) if backend is None else backend.to_str()
    return whole, tokenizer.chat_template, tokenizer.eos_token_id, tokenizer.pad_token_id


def _all_digest(model: PreTrainedModel) -> str:
    parameters: Mapping[str, torch.Tensor] = dict(model.named_parameters())
    return tensors_digest(parameters)


def _require_same(written: str, meant: str, folder: Path) -> None:
    if written != meant:
        what = f"was written with other weights ({written[:10]}) than meant ({meant[:10]})."
        raise StoreError(Problem(str(folder), what, action="Check the disk, and export again."))
