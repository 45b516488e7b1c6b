"""The policy that a trial begins with: the one its config names, or a checkpoint of its parent."""

from dataclasses import replace
from pathlib import Path

from rltune.errors import CheckpointError
from rltune.policy.load import Policy, file_digest, policy_of, weights_digest
from rltune.spec.schema.trial import TrialConfig
from rltune.store.origin import read_origin
from rltune.store.rundir import TrialDir
from rltune.trainer.checkpoint import require_same_parameters, restore_module


def policy_at_start(trial: TrialDir, config: TrialConfig, base: Path, *, device: str) -> Policy:
    """Load the policy that a trial begins with; a KL term ties the trial to exactly this one.

    A child holds the weights that it starts from. A relative `policy.model` refers to `base`.

    Raises:
        CheckpointError: The weights to start from are missing, torn, or not those of the record.

    """
    policy = policy_of(config, base, device=device)
    origin = read_origin(trial)
    if origin is None or not origin.weights_sha256:
        return policy
    return _with_weights(policy, trial.start, origin.weights_sha256)


def checkpoint_digest(folder: Path) -> str:
    """Return the digest of a checkpoint's policy, as provenance.json and the card name weights.

    Raises:
        CheckpointError: The file is missing or torn.

    """
    path = folder / "policy.safetensors"
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
