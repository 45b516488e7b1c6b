"""Load a policy: weights, tokenizer, and the text that its prompts are made of."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer
from transformers.utils import logging as transformers_logging

from rltune.errors import InputError, Problem
from rltune.policy.decode import TransformersDecoder
from rltune.policy.gradient_checkpointing import set_gradient_checkpointing
from rltune.policy.lora import add_adapter, trained_parameters
from rltune.policy.model_check import require_context, require_fit
from rltune.policy.precision import round_frozen, set_compute_dtype
from rltune.policy.render import ChatRenderer, PlainRenderer, TextRenderer
from rltune.policy.source import read_model, read_tokenizer
from rltune.policy.static_decode import StaticDecoder, decoder_of
from rltune.spec.schema.trial import LoraConfig, TrialConfig
from rltune.spec.trial_reference import is_reference, model_path

FROZEN = "frozen_sha256"  # metadata key of a checkpoint's file: digest of the weights not in it
CausalLM = PreTrainedModel  # for other rooms, which do not import transformers


@dataclass(frozen=True)
class Policy:
    """A causal LM with everything needed to talk to it."""

    model: PreTrainedModel  # the weights that are trained
    tokenizer: Tokenizer  # its tokenizer
    renderer: TextRenderer  # turns observations into the token ids that follow in a conversation
    end_ids: tuple[int, ...]  # ids that end a response
    pad_id: int  # id for padding
    weights_sha256: str  # digest of the weights as loaded
    tokenizer_sha256: str  # digest of tokenizer, template and kind of renderer

    def decoder(self) -> TransformersDecoder | StaticDecoder:
        """Return the decoder of a rollout engine; on CUDA it uses graphs."""
        return decoder_of(self.model, pad_id=self.pad_id, end_ids=self.end_ids)


def load_policy(
    model: str,
    *,
    dtype: str,
    template: str,
    is_bare: bool,
    env_kind: str,
    device: str,
    lora: LoraConfig | None = None,
    seed: int = 0,
    gradient_checkpointing: bool = False,
) -> Policy:
    """Load a policy by name.

    Args:
        model: `tiny`, a folder in transformers' format, or a hub id.
        dtype: Number format of the computation, `float32` or `bfloat16`; trained weights are
            float32.
        template: `auto` uses the tokenizer's chat template if it has one, `append` its frames even
            if it rewrites earlier responses; `plain` uses none.
        is_bare: Write only observations and responses: for compact prompts.
        env_kind: Chooses among the shipped tiny policies.
        device: Where the weights go.
        lora: Adapters to train; None trains all weights.
        seed: Of the trial; new adapters are drawn from it.
        gradient_checkpointing: Compute activations again in the backward pass.

    Raises:
        InputError: The model or an adapter cannot be found, loaded or used, or the chat template
            rewrites history.

    """
    quiet()
    network, tokenizer = read_model(model, env_kind)
    if lora is not None:
        add_adapter(network, lora, seed=seed)
    set_compute_dtype(network, dtype)
    round_frozen(network)
    set_gradient_checkpointing(network, gradient_checkpointing)
    network.to(device).eval()
    policy = assemble(network, tokenizer, template=template, is_bare=is_bare)
    require_fit(policy.model, tokenizer, policy.decoder())
    return policy


def quiet() -> None:
    """Show no progress bars: a trial's log is read by people."""
    transformers_logging.disable_progress_bar()


def policy_of(config: TrialConfig, base: Path, *, device: str) -> Policy:
    """Load the policy that a config begins with.

    Args:
        config: Resolved config.
        base: Folder to which a relative `policy.model` or `policy.lora.init` refers; a reference to
            a trial stands for the folder that it was exported to.
        device: Where the weights go.

    """
    folder = model_path(config.policy.model, base)
    is_folder = config.policy.model != "tiny" and folder.is_dir()
    if is_reference(config.policy.model) and not is_folder:
        what = f"{config.policy.model!r} is not exported on this machine."
        action = f"rltune model TRIAL --out {folder}, with the trial that it names."
        raise InputError(Problem("policy.model", what, action=action))
    policy = load_policy(
        str(folder) if is_folder else config.policy.model,
        dtype=config.policy.dtype,
        template=config.policy.template,
        is_bare=config.env.prompt == "compact",
        env_kind=config.env.kind,
        device=device,
        lora=_from(base, config.policy.lora),
        seed=config.seed,
        gradient_checkpointing=config.optim.gradient_checkpointing,
    )
    require_context(policy.model, config.rollout.max_context, engine=config.rollout.engine)
    return policy


def policy_without_weights(config: TrialConfig, base: Path, model: torch.nn.Module) -> Policy:
    """Put a policy together whose weights are elsewhere.

    Args:
        config: Resolved config; the tokenizer is that of `policy.model`.
        base: Folder to which a relative `policy.model` refers.
        model: Stands for the weights; without parameters.

    Raises:
        InputError: The tokenizer cannot be found or read.

    """
    tokenizer, generation = read_tokenizer(config.policy.model, config.env.kind, base)
    vars(model)["generation_config"] = generation
    is_bare = config.env.prompt == "compact"
    return assemble(model, tokenizer, template=config.policy.template, is_bare=is_bare)


def _from(base: Path, lora: LoraConfig) -> LoraConfig:
    """Return the adapters with `init` as a path independent of the working folder."""
    if lora.init == "default":
        return lora
    return lora.model_copy(update={"init": str(model_path(lora.init, base, adapter=True))})


def assemble(
    model: PreTrainedModel, tokenizer: Tokenizer, *, template: str, is_bare: bool
) -> Policy:
    """Put a policy together from a loaded model and tokenizer."""
    end_ids = _end_ids(model, tokenizer)
    renderer: TextRenderer
    if is_bare:
        kind = "bare"
        renderer = PlainRenderer(tokenizer, user="", assistant="", end_ids=end_ids)
    elif template != "plain" and tokenizer.chat_template:
        kind = "chat"
        is_appended = template == "append"
        renderer = ChatRenderer(tokenizer, end_ids=end_ids, is_appended=is_appended)
        end_ids = tuple(sorted({*renderer.end_ids}))
    else:
        kind = "plain"
        renderer = PlainRenderer(
            tokenizer, user="\nUser: ", assistant="\nAssistant: ", end_ids=end_ids
        )
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else end_ids[0]
    return Policy(
        model=model,
        tokenizer=tokenizer,
        renderer=renderer,
        end_ids=end_ids,
        pad_id=pad_id,
        weights_sha256=weights_digest(model),
        tokenizer_sha256=tokenizer_digest(tokenizer, kind=kind, end_ids=end_ids, pad_id=pad_id),
    )


def weights_digest(model: torch.nn.Module) -> str:
    """Return the sha256 over the names, shapes and bytes of all parameters.

    With adapters it is over the digests of the frozen and of the trained weights, so that a
    checkpoint's file, which holds these and names those, has the policy's digest.
    """
    trained, frozen = trained_parameters(model), frozen_digest(model)
    return _joint_digest(tensors_digest(trained), frozen) if trained else frozen


def frozen_digest(model: torch.nn.Module) -> str:
    """Return the sha256 over the frozen parameters; empty when there are none."""
    frozen = {name: p for name, p in model.named_parameters() if not p.requires_grad}
    return tensors_digest(frozen) if frozen else ""


def file_digest(path: Path) -> str:
    """Return the `weights_digest` of the policy that a checkpoint's file was saved from."""
    with safe_open(path, framework="pt") as file:
        frozen = (file.metadata() or {}).get(FROZEN, "")
    return _joint_digest(tensors_digest(load_file(path)), frozen)


def _joint_digest(trained: str, frozen: str) -> str:
    return hashlib.sha256(f"{frozen} {trained}".encode()).hexdigest() if frozen else trained


def tensors_digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """Return the sha256 over the names, shapes and bytes of tensors."""
    digest = hashlib.sha256()
    for name, parameter in sorted(tensors.items()):
        tensor = parameter.detach().cpu().contiguous()
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def tokenizer_digest(
    tokenizer: Tokenizer, *, kind: str, end_ids: Sequence[int], pad_id: int
) -> str:
    """Return the sha256 over what decides the ids of a text and the end of a response.

    Args:
        tokenizer: Its whole definition and chat template count.
        kind: Kind of renderer: `bare`, `plain` or `chat`.
        end_ids: Ids that end a response.
        pad_id: Id for padding.

    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    definition = sorted(tokenizer.get_vocab().items()) if backend is None else backend.to_str()
    parts = [definition, tokenizer.chat_template, kind, list(end_ids), pad_id]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _end_ids(model: PreTrainedModel, tokenizer: Tokenizer) -> tuple[int, ...]:
    configured = model.generation_config.eos_token_id if model.generation_config else None
    ends = configured if isinstance(configured, list) else [configured]
    ids = {*ends, tokenizer.eos_token_id} - {None}
    if not ids:
        raise InputError(
            Problem(
                "policy.model",
                "neither the tokenizer nor generation_config.json names an end-of-text token.",
                action="Set eos_token in the model folder's tokenizer_config.json.",
            )
        )
    return tuple(sorted(ids))
