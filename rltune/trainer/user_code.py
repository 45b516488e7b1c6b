"""The files of the modules that a person wrote and a config runs, with all that these import.

Read from the text of the modules: nothing is imported, so that an import inside a function counts
like one at the top. Installed packages are not followed, they are named: their versions are
recorded. Python's own modules are neither. A name that is put together while the program runs is
not seen.
"""

import ast
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib import invalidate_caches, metadata
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from rltune.comparability.audit_provenance import PACKAGES

_OURS = ("rltune", "rltune_envs")
_INSTALLED = {"site-packages", "dist-packages"}
_PYTHON = [Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib")]
_IMPORTERS = ("import_module", "__import__", "load_object")


def module_files(names: Iterable[str]) -> set[Path]:
    """Return the files of modules and of all modules that they import outside installed packages.

    The packages of `names` (dotted) count wherever they are, installed or not.
    """
    return _walked(names)[0]


def installed_imports(names: Iterable[str]) -> set[str]:
    """Return the names of the installed distributions that these modules import.

    Those that every trial records are left out: to look all others up takes a moment.
    """
    tops = _walked(names)[1] - {*PACKAGES}
    if not tops:
        return set()
    providers = metadata.packages_distributions()
    return {distribution for top in tops for distribution in providers.get(top, ())}


def _walked(names: Iterable[str]) -> tuple[set[Path], set[str]]:
    """Return the files of modules and what they import, and the packages that are not followed."""
    invalidate_caches()
    asked = list(names)
    named = {name.partition(".")[0] for name in asked}
    folders: dict[str, list[Path]] = {}
    seen: set[str] = set()
    files: set[Path] = set()
    while asked:
        name = asked.pop()
        top = name.partition(".")[0]
        if not name or name in seen or top in _OURS:
            continue
        seen.add(name)
        if top not in folders:
            folders[top] = _folders(top, is_named=top in named)
        asked += _parents(name)
        for file in _files(name, folders[top]):
            files.add(file)
            asked += _imports(file, name)
    installed = {top for top, places in folders.items() if not places}
    return files, installed - sys.stdlib_module_names


def _folders(top: str, *, is_named: bool) -> list[Path]:
    """Return the folders in which a top-level module is; none for one that is installed."""
    try:
        spec = PathFinder.find_spec(top) or find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return []
    if spec is None:
        return []
    places = [Path(place).parent for place in spec.submodule_search_locations or ()]
    if not places and spec.origin and spec.has_location:
        places = [Path(spec.origin).parent]
    return [place for place in places if is_named or not _is_installed(place)]


def _is_installed(folder: Path) -> bool:
    resolved = folder.resolve()
    return bool(_INSTALLED & {*resolved.parts}) or any(map(resolved.is_relative_to, _PYTHON))


def _parents(name: str) -> list[str]:
    words = name.split(".")
    return [".".join(words[:n]) for n in range(1, len(words))]


def _files(name: str, folders: Iterable[Path]) -> Iterator[Path]:
    """Yield the file of a module, or of a package; none for a package that is only a folder."""
    words = name.split(".")
    for folder in folders:
        path = folder.joinpath(*words)
        for file in (path / "__init__.py", path.parent / f"{words[-1]}.py"):
            if file.is_file():
                yield file
                return


def _imports(file: Path, name: str) -> Iterator[str]:
    """Yield the names of what a module may import; some of them are no modules."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _from(node, package)
        elif isinstance(node, ast.Call):
            yield from _called(node, package)


def _from(node: ast.ImportFrom, package: str) -> Iterator[str]:
    source = _absolute("." * node.level + (node.module or ""), package)
    if not source:
        return
    yield source
    for alias in node.names:
        yield from _modules_of(source) if alias.name == "*" else [f"{source}.{alias.name}"]


def _modules_of(package: str) -> Iterator[str]:
    """Yield the modules of a package: what a star may import, or a name made at run time."""
    top, *words = package.split(".")
    for folder in _folders(top, is_named=False):
        for path in sorted(folder.joinpath(top, *words).glob("*.py")):
            yield f"{package}.{path.stem}"


def _called(node: ast.Call, package: str) -> Iterator[str]:
    """Yield what a call of an importing function names, in full or up to its last dot."""
    function = node.func
    called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if called not in _IMPORTERS or not node.args:
        return
    first = node.args[0]
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        yield _absolute(first.value.partition(":")[0], package)
    elif isinstance(first, ast.JoinedStr) and isinstance(first.values[0], ast.Constant):
        text = str(first.values[0].value)
        head = text.rpartition(".")[0] or text[:1]
        if "." in text and (prefix := _absolute(head, package)):
            yield from _modules_of(prefix)


def _absolute(text: str, package: str) -> str:
    """Return a module's full name; empty for a text that names none."""
    relative = text.lstrip(".")
    level = len(text) - len(relative)
    words = package.split(".") if package else []
    if level > len(words):
        return ""
    head = words[: len(words) - level + 1] if level else []
    name = ".".join([*head, *([relative] if relative else [])])
    return name if all(word.isidentifier() for word in name.split(".")) else ""
