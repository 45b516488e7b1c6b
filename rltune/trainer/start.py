"""The policy that a trial begins with: the one its config names, or a checkpoint of its parent."""

from dataclasses import replace
from pathlib import Path

from rltune.errors import CheckpointError
from rltune.policy.load import (
    Policy,
    file_digest,
    policy_of,
    policy_without_weights,
    weights_digest,
)
from rltune.policy.precision import set_compute_dtype
from rltune.remote.meter import Meter
from rltune.remote.model import RemoteModel
from rltune.remote.session import Session, require_service
from rltune.remote.state import REMOTE
from rltune.spec.model_name import service_model
from rltune.spec.schema.trial import TrialConfig
from rltune.store.origin import read_origin
from rltune.store.prices import price_of
from rltune.store.rundir import TrialDir
from rltune.trainer.checkpoint import require_same_parameters
from rltune.trainer.ranks.tensors import restore_module


def policy_at_start(trial: TrialDir, config: TrialConfig, base: Path, *, device: str) -> Policy:
    """Load the policy that a trial begins with; a KL term ties the trial to exactly this one.

    A child holds the weights that it starts from. A relative `policy.model` refers to `base`.

    Raises:
        CheckpointError: The weights to start from are missing, torn, or not those of the record.

    """
    origin = read_origin(trial)
    if config.trainer.backend == "tinker":
        if origin is not None and origin.weights_sha256:
            what = f"{trial.path} starts from a checkpoint, and a service makes its own adapters"
            raise CheckpointError(f"{what}. Set trainer.backend to torch")
        return remote_policy(config, base, trial.service)
    policy = policy_of(config, base, device=device)
    if origin is None or not origin.weights_sha256:
        return policy
    return _with_weights(policy, trial.start, origin.weights_sha256)


def remote_policy(config: TrialConfig, base: Path, usage: Path) -> Policy:
    """Return a policy whose adapter a service holds; its tokenizer is here.

    The service does not tell the digest of its weights: that is `unknown`. What is asked of it is
    counted in the file `usage`.

    Raises:
        InputError: The tokenizer or a price cannot be found, or the SDK or its key is missing.

    """
    require_service("trainer.backend")
    name = remote_base(config)
    meter = Meter(usage, price_of(config.trainer.prices, name, base, "trainer.prices"))
    session = Session(name, timeout_s=config.trainer.timeout_s, meter=meter)
    model = RemoteModel(session, rank=config.policy.lora.rank, seed=config.seed)
    # In which format a service computes it does not say: the wider tolerance.
    set_compute_dtype(model, "bfloat16")
    policy = policy_without_weights(config, base, model)
    return replace(policy, weights_sha256="unknown")


def remote_base(config: TrialConfig) -> str:
    """Return the name of the base model on a service."""
    return service_model(config.policy.model, config.env.kind)


def checkpoint_digest(folder: Path) -> str:
    """Return the digest of a checkpoint's policy, as provenance.json and the card name weights.

    Raises:
        CheckpointError: The file is missing or torn.

    """
    path = folder / "policy.safetensors"
    if (folder / REMOTE).exists():
        what = f"the weights of {folder} are on the service that trained them"
        raise CheckpointError(f"{what}; nothing can start from them here")
    try:
        return file_digest(path)
    except Exception as error:  # safetensors raises its own kinds for torn files
        raise CheckpointError(f"{path} cannot be read ({error})") from error


def _with_weights(policy: Policy, path: Path, wanted: str) -> Policy:
    try:
        require_same_parameters(path, policy.model)
        restore_module(policy.model, path)
    except Exception as error:  # safetensors raises its own kinds for torn files
        what = f"the weights to start from, {path}, cannot be used ({error})"
        raise CheckpointError(what) from error
    digest = weights_digest(policy.model)
    if digest != wanted:
        raise CheckpointError(
            f"{path} holds other weights ({digest[:10]}) than this trial was made to start from "
            f"({wanted[:10]}). Restore the file, or move the trial's folder away"
        )
    return replace(policy, weights_sha256=digest)
