"""YAML files with line numbers, and without YAML's traps.

Only `true` and `false` are truth values (`yes`, `no`, `on`, `off` are text), `1e-3` is a number,
`1:30` and `010` are text, duplicate keys are an error, and so are anchors, aliases and tags: a
value that is used twice is written as `${section.key}`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from rltune.errors import Problem
from rltune.spec.paths import KeyPath


@dataclass(frozen=True, slots=True)
class YamlFile:
    """One file as read: its text, its mapping, and the line of every key and list item."""

    path: Path
    text: str
    data: Mapping[str, Any]
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def where(self, path: KeyPath) -> str:
        """Return `file:line` of the deepest part of a key path that the file has."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.lines:
                return f"{self.path}:{self.lines[path[:end]]}"
        return str(self.path)

    def locate(self, path: KeyPath) -> str:
        """Return `file:line: dotted.key` of a key path."""
        return f"{self.where(path)}: {'.'.join(path)}" if path else str(self.path)


class DuplicateKeyError(yaml.MarkedYAMLError):
    """A mapping has one key twice; all but the last value would be lost."""


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalar rules of the module docstring and no aliases."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - pyyaml's own class attribute

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise yaml.MarkedYAMLError(
                problem="anchors and aliases are not used here; write ${section.key} instead",
                problem_mark=event.start_mark,
            )
        node: yaml.Node | None = super().compose_node(parent, index)  # type: ignore[arg-type]
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse keys that are one key to Python: 1 and 1.0, a and "a"."""
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            seen: set[Any] = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node, deep=True)
                if key in seen:
                    what = f"{key_node.value!r} is given twice"
                    raise DuplicateKeyError(problem=what, problem_mark=key_node.start_mark)
                seen.add(key)
        return mapping

    def construct_document(self, node: yaml.Node) -> Any:
        """Refuse what Python cannot read, such as a whole number of thousands of digits."""
        try:
            return super().construct_document(node)
        except ValueError as error:
            raise yaml.YAMLError(str(error).partition(";")[0]) from error


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(true|false)$"), list("tf"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile("^(null|~|)$"), ["n", "~", ""])
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(0|[1-9][0-9]*)$"), list("-+0123456789")
)
_FLOAT = (
    "tag:yaml.org,2002:float",
    re.compile(
        r"^([-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.(inf|Inf)|\.(nan|NaN))$"
    ),
    list("-+0123456789."),
)
_Loader.add_implicit_resolver(*_FLOAT)


class _Dumper(yaml.SafeDumper):
    """SafeDumper that also quotes the texts that are numbers only here, such as "5e-3"."""


_Dumper.add_implicit_resolver(*_FLOAT)


def dump_yaml(data: object, *, width: int = 80) -> str:
    """Return plain data as YAML that `parse_yaml` reads back as it was."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width)


def parse_value(text: str) -> Any:
    """Return the value of one YAML fragment (right side of `--set key=value`).

    Raises:
        DuplicateKeyError: A mapping in it has one key twice.
        yaml.YAMLError: The text is not YAML.

    """
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def read_yaml(path: Path, *, kind: str) -> YamlFile | Problem:
    """Return a YAML mapping with its lines, or the one problem that prevents reading it."""
    text = _read_text(path, kind)
    if isinstance(text, Problem):
        return text
    parsed = parse_yaml(Path(), text, kind)  # the same text lies in many places
    if isinstance(parsed, YamlFile):
        return replace(parsed, path=path)
    return parse_yaml(path, text, kind)


@lru_cache(maxsize=256)  # a base and a profile are read again with every sweep over them
def parse_yaml(path: Path, text: str, kind: str) -> YamlFile | Problem:
    """Return the YAML mapping in a text, `path` for messages, or what prevents reading it."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        return _syntax_problem(path, text, error)
    except yaml.YAMLError as error:  # a control character; no mark
        return Problem(str(path), f"is not YAML: {' '.join(str(error).split())}.")
    except RecursionError:
        return Problem(str(path), f"The {kind} is nested too deeply.")
    if node is None:
        return Problem(
            str(path), f"The {kind} is empty.", action="See `rltune init` for one to edit."
        )
    if not isinstance(node, yaml.MappingNode):
        found = "a list" if isinstance(node, yaml.SequenceNode) else "one value"
        where = f"{path}:{node.start_mark.line + 1}"
        return Problem(
            where, f"The {kind} holds {found} at the top.", "It must be a mapping of keys."
        )
    lines: dict[KeyPath, int] = {}
    problem = _index(node, (), lines, path)
    if problem is not None:
        return problem
    try:
        data = loader.construct_document(node)
    except DuplicateKeyError as error:
        where = f"{path}:{error.problem_mark.line + 1}" if error.problem_mark else str(path)
        return Problem(where, f"{error.problem}.", action="Keep one of them.")
    except yaml.MarkedYAMLError as error:
        return _syntax_problem(path, text, error)
    except yaml.YAMLError as error:
        return Problem(str(path), f"is not YAML: {error}.")
    return YamlFile(path, text, data, lines)


def _read_text(path: Path, kind: str) -> str | Problem:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return Problem(str(path), f"There is no such {kind}.")
    except IsADirectoryError:
        return Problem(str(path), f"The {kind} is a folder.", "Give a YAML file.")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        where = f"{path}:{line}"
        return Problem(
            where, f"Byte 0x{error.object[error.start]:02x} is not UTF-8.", "Save as UTF-8."
        )
    except OSError as error:
        return Problem(str(path), f"The {kind} cannot be read: {error.strerror}.")


def _syntax_problem(path: Path, text: str, error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else 1
    source = text.splitlines()[line - 1 : line]
    if source and "\t" in source[0][: len(source[0]) - len(source[0].lstrip())]:
        return Problem(f"{path}:{line}", "A tab indents this line.", "YAML allows spaces only.")
    return Problem(f"{path}:{line}", f"is not YAML: {error.problem or error.context}.")


def _index(node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], file: Path) -> Problem | None:
    """Record the line of every key below a node; return the first duplicate or bad key."""
    if isinstance(node, yaml.SequenceNode):
        for i, item in enumerate(node.value):
            lines[(*path, str(i))] = item.start_mark.line + 1
            problem = _index(item, (*path, str(i)), lines, file)
            if problem is not None:
                return problem
    if not isinstance(node, yaml.MappingNode):
        return None
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            return Problem(f"{file}:{line}", "A key must be one value, not a list or mapping.")
        key = (*path, key_node.value)
        if key in lines:
            what = f"{key_node.value!r} is given twice, first in line {lines[key]}."
            return Problem(f"{file}:{line}: {'.'.join(key)}", what, action="Keep one of them.")
        lines[key] = line
        problem = _index(value_node, key, lines, file)
        if problem is not None:
            return problem
    return None
