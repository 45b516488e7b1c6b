"""Sweep files that a study writes: derived from a person's, beside a link to the same configs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rltune.spec.yamlfile import dump_yaml
from rltune.store.files import link_atomic, write_text_atomic


def write_sweep(path: Path, data: Mapping[str, Any], *, head: str, configs_of: Path) -> None:
    """Write a sweep file, unless it is there already.

    Args:
        path: Where to, in a folder `sweeps`; a link `configs` is kept beside that folder.
        data: Its keys.
        head: A sentence for its first line.
        configs_of: The sweep file that it is derived from: base, profile and protocol are found as
            from there.

    """
    body = dump_yaml(dict(data), width=100)
    text = f"# {head}\n{body}"
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomic(path, text)
    configs = (configs_of.parent.resolve().parent / "configs").resolve()
    link = path.parent.parent / "configs"
    if not configs.is_dir():
        link.unlink(missing_ok=True)  # of another source, before
    elif link.resolve() != configs:
        link_atomic(link, str(configs))
