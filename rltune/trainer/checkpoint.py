"""Checkpoints: safetensors plus JSON, written beside and renamed, never pickled.

A file holds what is trained: with LoRA the adapter, and in its metadata the digest of the base.
What a service trains it keeps itself; the file then says where.

Random draws come from named streams (maths.streams), so no generator state needs saving: the step
is the state of all of them.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch
from pydantic import TypeAdapter
from safetensors import safe_open

from rltune.errors import CheckpointError
from rltune.gate import GateResult
from rltune.policy.load import Policy, frozen_digest
from rltune.policy.lora import trained_parameters
from rltune.remote.model import RemoteAdamW
from rltune.remote.state import REMOTE, restore_state, save_state
from rltune.store.files import fsync_dir, link_atomic, sha256_file
from rltune.store.rundir import TrialDir
from rltune.trainer.ahead.rollouts import FILE, Rollouts, dump_rollouts
from rltune.trainer.controllers import Controllers
from rltune.trainer.ranks.tensors import (
    modules_of,
    optimizers_of,
    restore,
    restore_module,
    write_module,
    write_optimizer,
)
from rltune.trainer.train_state import TrainState, updates_made


@dataclass(frozen=True, slots=True)
class Progress:
    """Everything besides tensors that a trial carries from step to step.

    Attributes:
        step: Last finished training step.
        gates: Held-out results so far, step 0 included.
        rollouts: Episodes played in training so far.
        generated_tokens: Tokens sampled in training so far.
        optimizer_steps: Mini-batches gone through so far, those of a critic warm-up included.
        policy_updates: Updates of the policy so far.
        critic_updates: Updates of the critic so far; 0 without one.
        consecutive_empty: Steps in a row in which the filter kept nothing.
        controllers: State of everything that adapts to what was seen.
        train_s: Seconds of training steps in all attempts.
        total_s: Seconds in all attempts, evaluations and checkpoints included. Like `train_s`, it
            lacks what a killed attempt spent after its last checkpoint.

    """

    step: int = 0
    gates: tuple[GateResult, ...] = ()
    rollouts: int = 0
    generated_tokens: int = 0
    optimizer_steps: int = 0
    policy_updates: int = 0
    critic_updates: int = 0
    consecutive_empty: int = 0
    controllers: Controllers = field(default_factory=Controllers)
    train_s: float = 0.0
    total_s: float = 0.0


_PROGRESS: TypeAdapter[Progress] = TypeAdapter(Progress)


class ForeignCheckpointError(CheckpointError):
    """The checkpoint is whole, and of another config or start."""


def save_checkpoint(
    trial: TrialDir,
    train_state: TrainState,
    progress: Progress,
    *,
    config_hash: str,
    rollouts: Rollouts | None = None,
) -> Path:
    """Write the checkpoint of the current step and point `latest` at it.

    Args:
        trial: Whose it is.
        train_state: What is trained.
        progress: Everything else that the trial carries on.
        config_hash: Identity of its config.
        rollouts: Of the next step, where they are sampled already: by weights that are gone.

    """
    folder = trial.checkpoint(progress.step)
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    if isinstance(train_state.actor_optimizer, RemoteAdamW):
        adamw = train_state.actor_optimizer
        save_state(train_state.policy.model, adamw, part, folder.name)
    everywhere = train_state.group.everywhere
    for name, module in modules_of(train_state).items():
        is_whole = train_state.sharded is None
        frozen = frozen_digest(module) if is_whole else train_state.frozen[name]
        path = part / f"{name}.safetensors"
        everywhere("a checkpoint", write_module, train_state, name, path, frozen)
    for name in optimizers_of(train_state):
        path = part / f"{name}.safetensors"
        everywhere("a checkpoint", write_optimizer, train_state, name, path)
    if rollouts is not None:
        (part / FILE).write_text(dump_rollouts(rollouts), encoding="utf-8")
    state = {
        "trial_id": trial.trial_id,
        "config_hash": config_hash,
        "start": _start_of(train_state.policy),
        "sha256": {path.name: sha256_file(path) for path in sorted(part.iterdir())},
        "progress": asdict(progress),
    }
    (part / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")
    for path in part.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    fsync_dir(part)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
    fsync_dir(folder.parent)
    link_atomic(trial.latest, folder.name)
    return folder


def load_checkpoint(folder: Path, train_state: TrainState, *, config_hash: str) -> Progress:
    """Restore weights and optimisers in place; return the progress.

    Raises:
        CheckpointError: A file is missing or torn, or the checkpoint is of another config or began
            with another model; nothing was restored.

    """
    progress = _require_whole(folder, train_state, config_hash=config_hash)
    if isinstance(train_state.actor_optimizer, RemoteAdamW):
        restore_state(train_state.policy.model, train_state.actor_optimizer, folder)
    train_state.group.everywhere("a checkpoint's return", restore, train_state, folder)
    return with_updates(progress, train_state)


def with_updates(progress: Progress, train_state: TrainState) -> Progress:
    """Return the progress with the updates that the optimisers have made."""
    return replace(
        progress,
        policy_updates=updates_made(train_state.actor_optimizer),
        critic_updates=updates_made(train_state.critic_optimizer),
    )


def written_weights(folder: Path) -> str:
    """Return the sha256 of a checkpoint's policy as it was written, whatever the file is by now.

    Empty where a service keeps it, or the checkpoint is gone.
    """
    path = folder / "state.json"
    state = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"sha256": {}}
    return str(state["sha256"].get("policy.safetensors", ""))


def restore_policy(folder: Path, policy: Policy, *, config_hash: str) -> int:
    """Put a checkpoint's weights into the policy that its trial began with; return its step.

    Critic and optimisers are not read.

    Raises:
        CheckpointError: As in `load_checkpoint`.

    """
    path = folder / "policy.safetensors"
    with _reading(folder):
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        step = int(state["progress"]["step"])
        _require_config(folder, state["config_hash"], config_hash)
        _require_start(folder, state.get("start", {}), policy)
        _require_bytes(folder, {path.name: state["sha256"][path.name]})
        require_same_parameters(path, policy.model)
    restore_module(policy.model, path)
    return step


def path_on_service(folder: Path, *, config_hash: str) -> str:
    """Return where a service keeps the state of a checkpoint of this config.

    Raises:
        CheckpointError: A file is missing or torn, or the checkpoint is of another config.

    """
    with _reading(folder):
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        _require_config(folder, state["config_hash"], config_hash)
        _require_bytes(folder, state["sha256"])
        path: str = json.loads((folder / REMOTE).read_text(encoding="utf-8"))["path"]
    return path


def newest_checkpoint(
    trial: TrialDir, train_state: TrainState, *, config_hash: str
) -> tuple[Progress | None, list[str]]:
    """Restore the newest readable checkpoint; return its progress and what was passed over.

    A torn one is renamed to `torn-step-...`: under its own name it would count as the newest when
    old checkpoints are deleted.

    Raises:
        CheckpointError: One is of another config, or began with another model. It is left alone:
            going on without it would overwrite what another trial measured.

    """
    problems: list[str] = []
    for folder in sorted(trial.checkpoints.glob("step-*"), reverse=True):
        try:
            progress = load_checkpoint(folder, train_state, config_hash=config_hash)
        except ForeignCheckpointError:
            raise
        except CheckpointError as error:
            aside = folder.with_name(f"torn-{folder.name}")
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)
            problems.append(
                f"{error} It is now {aside.name}; the trial goes on from an older checkpoint, or "
                "from step 0."
            )
        else:
            link_atomic(trial.latest, folder.name)
            return progress, problems
    return None, problems


def prune_checkpoints(trial: TrialDir, *, keep_last: int, keep_steps: Iterable[int]) -> None:
    """Delete all but the newest `keep_last` checkpoints and those of `keep_steps`."""
    folders = sorted(trial.checkpoints.glob("step-*"))
    kept = {folder.name for folder in folders[-keep_last:]}
    kept |= {trial.checkpoint(step).name for step in keep_steps}
    for folder in folders:
        if folder.name not in kept:
            shutil.rmtree(folder)


def _require_whole(folder: Path, train_state: TrainState, *, config_hash: str) -> Progress:
    """Return the progress of a checkpoint of this config whose files are whole.

    All are looked at before any is loaded: a state that is half restored could not start from
    step 0 any more. safetensors refuses a file that is shorter than its header says.
    """
    with _reading(folder):
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        progress = _PROGRESS.validate_python(state["progress"])
        _require_config(folder, state["config_hash"], config_hash)
        _require_start(folder, state.get("start", {}), train_state.policy)
        _require_bytes(folder, state["sha256"])
        for name, module in modules_of(train_state).items():
            require_same_parameters(folder / f"{name}.safetensors", module)
        for name in optimizers_of(train_state):
            with safe_open(folder / f"{name}.safetensors", framework="pt"):
                pass
    return progress


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Name the folder in whatever goes wrong while it is read."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:  # safetensors raises its own kinds for torn files
        raise CheckpointError(
            f"{folder} cannot be read ({type(error).__name__}: {error})."
        ) from error


def _require_config(folder: Path, saved: str, config_hash: str) -> None:
    if saved != config_hash:
        raise ForeignCheckpointError(
            f"{folder} belongs to config {saved[:10]}, not {config_hash[:10]}. "
            "Move the trial's folder away to start this trial from step 0."
        )


def _start_of(policy: Policy) -> dict[str, str]:
    """Return what the trial began with; the model's folder may hold something else by now."""
    return {"weights": policy.weights_sha256, "tokenizer": policy.tokenizer_sha256}


def _require_start(folder: Path, saved: Mapping[str, str], policy: Policy) -> None:
    """Refuse to go on with another start: a KL would then tie the policy to it."""
    for name, now in _start_of(policy).items():
        before = saved.get(name, "unknown")
        if before != now:
            raise ForeignCheckpointError(
                f"{folder} began with other {name} ({before[:10]}) than policy.model now holds "
                f"({now[:10]}). Restore the model, or move the trial's folder away to "
                "start this trial from step 0."
            )


def _require_bytes(folder: Path, digests: Mapping[str, str]) -> None:
    """Refuse files that are not as they were written: safetensors does not see a flipped bit."""
    for name, digest in digests.items():
        if sha256_file(folder / name) != digest:
            raise ValueError(f"{name} was changed after it was written: its sha256 differs")


def require_same_parameters(path: Path, module: torch.nn.Module) -> None:
    """Raise ValueError when a file holds other parameters than a module trains."""
    with safe_open(path, framework="pt") as file:
        saved = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    if saved != {name: tuple(p.shape) for name, p in trained_parameters(module).items()}:
        raise ValueError(f"{path.name} does not hold the parameters of {type(module).__name__}")
