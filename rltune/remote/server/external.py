"""Adapters of a server written for other programs, as peft saves them, and fetched by file."""

import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from safetensors.torch import save

from rltune.policy.adapter_folder import CONFIG, WEIGHTS
from rltune.policy.serve import peft_name
from rltune.remote.server.adapter import Adapter
from rltune.remote.server.wire import RefusedError
from rltune.spec.backend_checks import ALPHA

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._-]*")
_LASTS = timedelta(hours=1)  # said of an address; it holds as long as the file is there


class External:
    """Folders in a folder, named `tinker://MODEL/external_weights/NAME`.

    One adapter is one folder, so that nothing is left of one that is deleted.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, model: str, name: str, adapter: Adapter) -> str:
        """Write an adapter; return its path.

        Raises:
            RefusedError: The name cannot be a folder's, or is taken.

        """
        folder = self._place(model, name)
        if folder.exists():
            raise RefusedError(f"there is a checkpoint {name!r} of this model already")
        part = folder.with_name(f".{folder.name}.part")
        part.mkdir(parents=True, exist_ok=True)
        tensors = {peft_name(key): value.contiguous() for key, value in adapter.weights().items()}
        (part / WEIGHTS).write_bytes(save(tensors, metadata={"format": "pt"}))
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": adapter.base_name,
            "r": adapter.rank,
            "lora_alpha": ALPHA,
            "lora_dropout": 0.0,
            "target_modules": list(adapter.targets),
            "bias": "none",
            "inference_mode": True,
        }
        (part / CONFIG).write_text(json.dumps(config, indent=1), encoding="utf-8")
        part.replace(folder)
        return f"tinker://{model}/external_weights/{name}"

    def addresses(self, model: str, name: str, root: str) -> dict[str, Any]:
        """Return an address for each file, below a root.

        Raises:
            RefusedError: There is no such adapter.

        """
        self._require(model, name)
        place = f"{root}training_runs/{model}/checkpoints/external_weights/{name}"
        urls = {file: f"{place}/files/{file}" for file in (CONFIG, WEIGHTS)}
        return {"urls": urls, "expires": (datetime.now(UTC) + _LASTS).isoformat()}

    def read(self, model: str, name: str, file: str) -> bytes:
        """Return a file.

        Raises:
            RefusedError: There is none.

        """
        folder = self._require(model, name)
        if file not in (CONFIG, WEIGHTS):
            raise RefusedError(f"there is no file {file!r}")
        return (folder / file).read_bytes()

    def delete(self, model: str, name: str) -> dict[str, Any]:
        """Delete an adapter.

        Raises:
            RefusedError: There is none.

        """
        shutil.rmtree(self._require(model, name))
        return {}

    def _require(self, model: str, name: str) -> Path:
        folder = self._place(model, name)
        if not folder.is_dir():
            raise RefusedError(f"there is no checkpoint 'external_weights/{name}' of {model!r}")
        return folder

    def _place(self, model: str, name: str) -> Path:
        if not (_NAME.fullmatch(model) and _NAME.fullmatch(name)):
            raise RefusedError(f"{name!r} is no name of a checkpoint: letters, digits and ._- only")
        return self._folder / f"{model}.external_weights.{name}".replace(":", "_")
