"""Write the model of a trial's checkpoint as a folder that other programs load."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltune.errors import CheckpointError, RemoteError, StoreError
from rltune.policy.export import Exported, Sampling, write_adapter, write_model
from rltune.policy.load import Policy, policy_of
from rltune.policy.lora import merge_adapter
from rltune.remote.download import download_adapter
from rltune.remote.session import Session
from rltune.spec.schema.trial import TrialConfig
from rltune.store.files import dumps, sha256_file
from rltune.store.new_folder import new_folder
from rltune.store.rundir import TrialDir
from rltune.trainer.checkpoint import path_on_service, restore_policy
from rltune.trainer.models.base import BaseModel, base_model
from rltune.trainer.models.card import card_markdown
from rltune.trainer.models.facts import card_facts
from rltune.trainer.ranks.tensors import restore_module
from rltune.trainer.start import policy_at_start, remote_base

FACTS, SUMS = "rltune.json", "SHA256SUMS"


@dataclass(frozen=True, slots=True)
class Trained:
    """A checkpoint of a trial."""

    trial: TrialDir  # its trial
    config: TrialConfig  # the trial's
    config_hash: str  # identity of the config
    base: Path  # folder to which relative paths in the config refer
    step: int  # of the checkpoint


def export_model(source: Trained, out: Path, *, merge: bool, where: str) -> dict[str, Any]:
    """Write a checkpoint as a model folder, or as an adapter folder with LoRA unless merged.

    A card (README.md), its facts as JSON and the checksums of all files lie beside the weights.

    Args:
        source: The checkpoint.
        out: Must not exist, or be empty.
        merge: Add an adapter to the weights of its base.
        where: What messages call `out`.

    Returns:
        What the card says, as plain data.

    Raises:
        StoreError: The checkpoint is torn or of another model than `policy.model` now holds, or the
            folder cannot be written.

    """
    with new_folder(out, where) as part:
        base = base_model(source.config, source.base)
        exported = _write(source, part, base, merge=merge)
        facts = card_facts(
            source.trial, source.config, source.step, exported, base=base, folder=source.base
        )
        (part / FACTS).write_text(dumps(facts, indent=1) + "\n", encoding="utf-8")
        (part / "README.md").write_text(card_markdown(facts), encoding="utf-8")
        (part / SUMS).write_text(checksums(part), encoding="utf-8")
    return json.loads(dumps(facts))  # type: ignore[no-any-return]


def checksums(folder: Path) -> str:
    """Return what `sha256sum --check` reads: a line for each file."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return "".join(f"{sha256_file(p)}  {p.relative_to(folder).as_posix()}\n" for p in paths)


def trained_policy(source: Trained, *, device: str = "cpu", exact: bool = False) -> Policy:
    """Return the policy of a checkpoint.

    Args:
        source: The checkpoint.
        device: Where the weights go.
        exact: Frozen weights as the base has them, not rounded to the format of the computation.

    Raises:
        StoreError: The checkpoint is torn or of another model than `policy.model` now holds.

    """
    folder = source.trial.checkpoint(source.step)
    try:
        if source.config.trainer.backend == "tinker":
            path = path_on_service(folder, config_hash=source.config_hash)
            return _downloaded(source, path, device=device)
        policy = policy_at_start(source.trial, source.config, source.base, device=device)
        step = restore_policy(folder, policy, config_hash=source.config_hash)
        if step != source.step:
            raise CheckpointError(f"{folder} holds the state of step {step}.")
        if exact and source.config.policy.dtype != "float32":
            return _in_float32(source, policy)
    except CheckpointError as error:
        raise StoreError(str(error)) from error
    return policy


def _downloaded(source: Trained, path: str, *, device: str) -> Policy:
    """Return the base with the adapter of a state, which the service that trained it keeps."""
    session = Session(remote_base(source.config), timeout_s=source.config.trainer.timeout_s)
    try:
        with tempfile.TemporaryDirectory() as adapter:
            download_adapter(session, path, Path(adapter))
            lora = source.config.policy.lora.model_copy(update={"init": adapter})
            policy = source.config.policy.model_copy(update={"lora": lora})
            config = source.config.model_copy(update={"policy": policy})
            return policy_of(config, source.base, device=device)
    except RemoteError as error:
        raise StoreError(str(error)) from error
    finally:
        session.close()


def _in_float32(source: Trained, proved: Policy) -> Policy:
    """Return a policy again with its base unrounded, once its start has been proved."""
    section = source.config.policy.model_copy(update={"dtype": "float32"})
    config = source.config.model_copy(update={"policy": section})
    policy = policy_of(config, source.base, device=str(proved.model.device))
    path = source.trial.checkpoint(source.step) / "policy.safetensors"
    restore_module(policy.model, path)
    return policy


def _write(source: Trained, folder: Path, base: BaseModel, *, merge: bool) -> Exported:
    config = source.config
    sampling = Sampling(config.gate.temperature, config.rollout.max_response_tokens)
    if config.policy.lora.rank and not merge:
        policy = trained_policy(source)
        return write_adapter(policy, folder, config.policy.lora, sampling, base=base.name)
    policy = trained_policy(source, exact=True)
    if config.policy.lora.rank:
        merge_adapter(policy.model)
    return write_model(policy, folder, sampling)
