"""The file of a checkpoint that says where a service keeps the state."""

import json
from pathlib import Path

from rltune.remote.model import RemoteAdamW, RemoteModel

REMOTE = "remote.json"
"""Name of the file: the path on the service, and the updates made."""


def save_state(model: RemoteModel, adamw: RemoteAdamW, folder: Path, name: str) -> None:
    """Let the service save weights and optimiser under a name; write where they are."""
    saved = {"path": model.save(name), "policy_updates": adamw.state["adapter"]["step"]}
    (folder / REMOTE).write_text(json.dumps(saved, indent=1), encoding="utf-8")


def restore_state(model: RemoteModel, adamw: RemoteAdamW, folder: Path) -> None:
    """Go on from the state that a file names."""
    saved = json.loads((folder / REMOTE).read_text(encoding="utf-8"))
    model.restore(saved["path"])
    adamw.state["adapter"]["step"] = saved["policy_updates"]
