"""Named checkpoints of a server, in files that outlive it."""

import json
import re
from pathlib import Path
from typing import Any

from rltune.remote.server.adapter import Adapter
from rltune.remote.server.wire import RefusedError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PATH = re.compile(r"tinker://([A-Za-z0-9:._-]+)/(weights|sampler_weights)/([A-Za-z0-9._-]+)")


class States:
    """Checkpoints below a folder, named `tinker://MODEL/weights/NAME`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, model: str, kind: str, name: str, adapter: Adapter, *, overwrite: bool) -> str:
        """Write a checkpoint; return its path.

        Raises:
            RefusedError: The name cannot be a file's, or is taken.

        """
        if not _NAME.fullmatch(name):
            raise RefusedError(f"{name!r} is no name of a checkpoint: letters, digits and ._- only")
        path = self._file(model, kind, name)
        if path.exists() and not overwrite:
            raise RefusedError(f"there is a checkpoint {name!r} of this model already")
        path.parent.mkdir(parents=True, exist_ok=True)
        adapter.save(path)
        known = {
            "base_model": adapter.base_name,
            "rank": adapter.rank,
            "targets": list(adapter.targets),
        }
        path.with_suffix(".json").write_text(json.dumps(known), encoding="utf-8")
        return f"tinker://{model}/{kind}/{name}"

    def find(self, path: str) -> tuple[Path, dict[str, Any]]:
        """Return the file of a checkpoint, and its base, rank and targets.

        Raises:
            RefusedError: There is none.

        """
        match = _PATH.fullmatch(path)
        file = self._file(*match.groups()) if match else None
        if file is None or not file.exists():
            raise RefusedError(f"there is no checkpoint {path!r} here")
        known: dict[str, Any] = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
        return file, known

    def _file(self, model: str, kind: str, name: str) -> Path:
        return self._folder / model.replace(":", "_") / kind / f"{name}.safetensors"
