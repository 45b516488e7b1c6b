"""Every text that the code holds, docstrings left out; `…` stands where a value is filled in."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def literals() -> tuple[str, ...]:
    """Return the texts of rltune and rltune_envs."""
    files = [*(ROOT / "rltune").rglob("*.py"), *(ROOT / "envs").rglob("*.py")]
    return tuple(text for path in sorted(files) for text in _texts(path))


def _texts(path: Path) -> Iterator[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    docs = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, _WITH_DOCSTRING) and isinstance(node.body[0], ast.Expr)
    }
    left_out = parts | docs
    for node in nodes:
        if id(node) in left_out:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(_part(part) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _part(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else "…"
