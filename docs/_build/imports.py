"""The rooms of the package and who imports whom, read off the sources; nothing is imported."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LEAF = "rltune_envs"
Edges = Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class Room:
    """A folder or a module directly below the package, or the package of environments.

    Attributes:
        name: As it is imported below `rltune`.
        path: Its folder or file.
        sentence: First paragraph of its docstring.
        n_files: Its Python files.

    """

    name: str
    path: Path
    sentence: str
    n_files: int


@cache
def _contracts() -> tuple[dict[str, Any], ...]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return tuple(settings["tool"]["importlinter"]["contracts"])


def contracts() -> tuple[str, ...]:
    """Return the names of the import contracts in pyproject.toml."""
    return tuple(contract["name"] for contract in _contracts())


def rows() -> tuple[str, ...]:
    """Return the layers as they are written, top first: `runner | report`."""
    layered = next(contract["layers"] for contract in _contracts() if "layers" in contract)
    return tuple(re.sub(r"rltune\.|[()]", "", row) for row in layered)


def layers() -> tuple[tuple[str, ...], ...]:
    """Return the rooms of each layer, top first; the package of environments is the last."""
    return (*(tuple(row.split(" | ")) for row in rows()), (LEAF,))


@cache
def rooms() -> dict[str, Room]:
    """Return every room by its name, in the order of the layers."""
    return {name: _room(name) for row in layers() for name in row}


def inner_rooms(room: Room) -> list[Room]:
    """Return the rooms inside a room."""
    inner = sorted(path.parent for path in (ROOT / room.path).glob("*/__init__.py"))
    return [_at(path.name, path) for path in inner]


def _room(name: str) -> Room:
    path = ROOT / "envs" / LEAF if name == LEAF else ROOT / "rltune" / name
    return _at(name, path if path.is_dir() else path.with_suffix(".py"))


def _at(name: str, path: Path) -> Room:
    files = list(path.rglob("*.py")) if path.is_dir() else [path]
    text = (path / "__init__.py" if path.is_dir() else path).read_text(encoding="utf-8")
    paragraph = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0]
    return Room(name, path.relative_to(ROOT), " ".join(paragraph.split()), len(files))


@cache
def edges() -> Edges:
    """Return (importer, imported) -> how many imports, those inside functions included."""
    found: Counter[tuple[str, str]] = Counter()
    for name, room in rooms().items():
        path = ROOT / room.path
        for file in path.rglob("*.py") if path.is_dir() else [path]:
            targets = map(_room_of, _imported(ast.parse(file.read_text(encoding="utf-8"))))
            found.update((name, target) for target in targets if target not in ("", name))
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "rltune":
            yield from (f"rltune.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def _room_of(module: str) -> str:
    """Return the room of a module; empty for one of another package."""
    package, _, rest = module.partition(".")
    name = LEAF if package == LEAF else rest.partition(".")[0] if package == "rltune" else ""
    return name if name in rooms() else ""


def direct(graph: Edges) -> list[tuple[str, str]]:
    """Return the edges that no longer path implies."""
    below: dict[str, set[str]] = {}
    for start, end in graph:
        below.setdefault(start, set()).add(end)

    @cache
    def reached(room: str) -> frozenset[str]:
        nexts = below.get(room, set())
        return frozenset(nexts).union(*(reached(one) for one in nexts))

    return [
        (start, end)
        for start, end in sorted(graph)
        if not any(end in reached(other) for other in below[start])
    ]
