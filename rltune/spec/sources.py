"""Finds the files that a sweep names: base configs, profiles, protocols."""

from collections.abc import Iterator
from pathlib import Path

from rltune.errors import Problem
from rltune.spec.keys import did_you_mean
from rltune.spec.yamlfile import YamlFile, read_yaml

PACKAGE = Path(__file__).resolve().parent.parent
FOLDERS = {"base": "", "profile": "profiles", "protocol": "protocols"}


def config_folders(sweep: Path) -> tuple[Path, ...]:
    """Return the config folders that exist, first match wins.

    Beside the sweep's folder, in the working directory, shipped in the wheel, in a clone.
    """
    candidates = (
        sweep.parent / ".." / "configs",
        Path("configs"),
        PACKAGE / "starter" / "configs",
        PACKAGE.parent / "configs",
    )
    found: dict[Path, Path] = {}
    for folder in candidates:
        if folder.is_dir():
            found.setdefault(folder.resolve(), _short(folder))
    return tuple(found.values())


def _short(folder: Path) -> Path:
    """Return a folder as a person in the working directory writes it."""
    resolved = folder.resolve()
    here = Path.cwd()
    return resolved.relative_to(here) if resolved.is_relative_to(here) else resolved


def find_source(sweep: Path, kind: str, name: str, where: str) -> YamlFile | Problem:
    """Return the file of a base config, profile or protocol, or why it cannot be read."""
    folders = config_folders(sweep)
    for folder in folders:
        path = folder / FOLDERS[kind] / f"{name}.yaml"
        if path.is_file():
            return read_yaml(path, kind=f"{kind} file")
    names = sorted(set(_names(folders, kind)))
    if not names:
        searched = ", ".join(str(folder) for folder in folders) or "no configs folder was found"
        return Problem(where, f"{name!r} is not a {kind}.", f"Looked in {searched}.")
    allowed = f"Choose one of {', '.join(names)}."
    return Problem(where, f"{name!r} is not a {kind}.", allowed, did_you_mean(name, names))


def _names(folders: tuple[Path, ...], kind: str) -> Iterator[str]:
    for folder in folders:
        for path in (folder / FOLDERS[kind]).glob("*.yaml"):
            yield path.stem
