"""What the card of an exported model says, as plain data: what it is, what was measured of it."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rltune.errors import InputError
from rltune.gate import wilson_interval
from rltune.policy.export import Exported
from rltune.spec.schema.trial import TrialConfig
from rltune.store.files import read_json
from rltune.store.inputs import recorded_inputs
from rltune.store.jsonl import read_jsonl
from rltune.store.origin import read_origin
from rltune.store.rundir import TrialDir
from rltune.trainer.models.base import BaseModel, portable_name

FORMAT = "rltune-model-2"
_PROMPT = 2000  # characters of the first prompt that the card shows
Facts = dict[str, Any]


def card_facts(
    trial: TrialDir,
    config: TrialConfig,
    step: int,
    exported: Exported,
    *,
    base: BaseModel,
    folder: Path,
) -> Facts:
    """Return what the card says, as plain data without paths of models on this machine.

    Args:
        trial: The trial.
        config: Its config.
        step: Training step of the checkpoint.
        exported: What was written.
        base: What training began with.
        folder: To which relative paths in the config refer.

    """
    spec, provenance = trial.read_spec(), _object(trial.provenance)
    origin = read_origin(trial)
    return {
        "format": FORMAT,
        "kind": exported.kind,
        "parameters": exported.parameters,
        "weights_sha256": exported.weights_sha256,
        "base": {
            "model": base.name,
            "how": base.how,
            "license": dict(base.license),
            "files": dict(base.files),
            "weights_sha256": provenance.get("weights_sha256", ""),
            "parent": None if origin is None else origin.parent,
        },
        "run": trial.path.parents[1].name,
        "trial_id": trial.trial_id,
        "sweep": spec.sweep,
        "condition": spec.condition,
        "axis": {"key": spec.axis_key, "value": spec.axis_value},
        "seed": spec.seed,
        "step": step,
        "status": "running" if (done := trial.read_done()) is None else str(done.status),
        "env": config.env.kind,
        "prompt": {
            "style": config.env.prompt,
            "template": config.policy.template,
            "max_context": config.rollout.max_context,
            "first": _text(trial.prompt)[:_PROMPT],
        },
        "play": {
            "env": config.env.model_dump(mode="json"),
            "reward": config.reward.model_dump(mode="json") if config.reward else None,
            "temperature": config.gate.temperature,
            "max_response_tokens": config.rollout.max_response_tokens,
        },
        "dtype": config.policy.dtype,
        "lora": _lora(config, folder),
        "has_critic": config.advantage.kind == "gae",
        "heldout": _heldout(trial, provenance, step),
        "test": _test(trial, step),
        "data": {
            "manifest_sha256": provenance.get("manifest_sha256", ""),
            "inputs": _inputs(provenance),
        },
        "config_hash": spec.config_hash,
        "code": {
            name: provenance.get(name)
            for name in ("commit", "dirty", "diff_sha256", "source_sha256", "versions", "device")
        },
        "command": _command(provenance.get("argv") or []),
    }


def _lora(config: TrialConfig, folder: Path) -> Facts | None:
    lora = config.policy.lora
    if not lora.rank:
        return None
    init = lora.init
    init = init if init == "default" else portable_name(init, folder, adapter=True)
    return {**lora.model_dump(mode="json"), "init": init}


def _inputs(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Return name -> sha256; of a file outside the project, the last two parts of its path."""
    return {
        "/".join(Path(name).parts[-2:]) if Path(name).is_absolute() else name: digest
        for name, digest in recorded_inputs(provenance).items()
    }


def _heldout(trial: TrialDir, provenance: Mapping[str, Any], step: int) -> Facts | None:
    """Return the gate at a step; None where there was none."""
    rows = [row for row in read_jsonl(trial.heldout).rows if row.get("step") == step]
    if not rows:
        return None
    row = rows[-1]
    counted = [ok for ok, fault in zip(row["success"], row["fault"], strict=True) if not fault]
    successes, n = sum(counted), len(counted)
    manifest = _manifest(trial, str(provenance.get("manifest_sha256", "")))
    return {
        "successes": successes,
        "n": n,
        "success_rate": successes / n if n else None,
        "interval": list(wilson_interval(successes, n)) if n else None,
        "floor": manifest.get("heldout_floor"),
        "ceiling": manifest.get("heldout_ceiling"),
        "temperature": row["temperature"],
        "tasks_sha256": row["tasks_sha256"],
    }


def _manifest(trial: TrialDir, sha256: str) -> Mapping[str, Any]:
    for path in sorted(trial.path.parents[1].glob("tasks*.json")):
        content = _object(path)
        if content.get("sha256") == sha256:
            return content
    return {}


def _test(trial: TrialDir, step: int) -> Facts | None:
    """Return the final test, where this very checkpoint was tested."""
    record = _object(trial.path / "test.json")
    if record.get("step") != step:
        return None
    names = ("successes", "n", "success_rate", "interval", "floor", "looks", "temperature")
    return {name: record.get(name) for name in names}


def _command(argv: Sequence[str]) -> str:
    """Return the command line of the launch, its program by its name alone."""
    return shlex.join([Path(argv[0]).name, *argv[1:]]) if argv else ""


def _object(path: Path) -> Mapping[str, Any]:
    try:
        content = read_json(path)
    except InputError:
        return {}
    return content if isinstance(content, dict) else {}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
