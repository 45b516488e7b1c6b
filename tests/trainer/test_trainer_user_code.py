"""Which files the modules of a person's own consist of, read from their text."""

import sys

import pytest

from rltune.trainer.user_code import installed_imports, module_files


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a function that writes modules, and names the files that some of them need."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def needed(modules, *names):
        for name, text in modules.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        found = module_files(names)
        assert not {name.split("/")[0].removesuffix(".py") for name in modules} & set(sys.modules)
        return sorted(path.relative_to(tmp_path).as_posix() for path in found)

    return needed


CASES = {
    "at the top": ({"q_env.py": "import q_help\n", "q_help.py": "", "q_no.py": ""}, ["q_help.py"]),
    "of a name": ({"q_env.py": "from q_help import x\n", "q_help.py": ""}, ["q_help.py"]),
    "inside a function": (
        {"q_env.py": "def f():\n    from q_help import x\n", "q_help.py": ""},
        ["q_help.py"],
    ),
    "over others": (
        {"q_env.py": "import q_a", "q_a.py": "import q_b", "q_b.py": "import q_env"},
        ["q_a.py", "q_b.py"],
    ),
    "of a package's module": (
        {"q_env.py": "import q_p.a.b", "q_p/__init__.py": "", "q_p/a/__init__.py": "import q_z",
         "q_p/a/b.py": "", "q_p/c.py": "", "q_z.py": ""},
        ["q_p/__init__.py", "q_p/a/__init__.py", "q_p/a/b.py", "q_z.py"],
    ),
    "of a submodule as a name": (
        {"q_env.py": "from q_p import a", "q_p/__init__.py": "", "q_p/a.py": "", "q_p/b.py": ""},
        ["q_p/__init__.py", "q_p/a.py"],
    ),
    "of a folder without __init__": (
        {"q_env.py": "from q_n.deep import a", "q_n/deep/a.py": "import q_n.b", "q_n/b.py": ""},
        ["q_n/b.py", "q_n/deep/a.py"],
    ),
    "of everything": (
        {"q_env.py": "from q_p import *", "q_p/__init__.py": "", "q_p/a.py": ""},
        ["q_p/__init__.py", "q_p/a.py"],
    ),
    "by a call": (
        {"q_env.py": "import importlib\nimportlib.import_module('q_help')", "q_help.py": ""},
        ["q_help.py"],
    ),
    "by a name made at run time": (
        {"q_env.py": "from importlib import import_module\n"
                     "def f(n):\n    return import_module(f'q_p.{n}')",
         "q_p/__init__.py": "", "q_p/a.py": "", "q_p/b.py": ""},
        ["q_p/__init__.py", "q_p/a.py", "q_p/b.py"],
    ),
    "of Python and of packages": ({"q_env.py": "import json, numpy, rltune_envs.base"}, []),
    "of nothing": ({"q_env.py": "import q_missing\nfrom . import q_other\nfrom .. import x"}, []),
    "in a file that is no Python": ({"q_env.py": "import q_help\n)", "q_help.py": ""}, []),
}  # fmt: skip


@pytest.mark.parametrize(("modules", "more"), CASES.values(), ids=CASES)
def test_an_import(project, modules, more):
    assert project(modules, "q_env") == sorted(["q_env.py", *more])


def test_relative_imports(project):
    modules = {
        "q_p/__init__.py": "from .far import x",
        "q_p/far.py": "",
        "q_p/one/__init__.py": "",
        "q_p/one/env.py": "from . import near\nfrom .near import y\nfrom ..two import z\n"
        "import importlib\nimportlib.import_module('.lazy', __package__)\n"
        "importlib.import_module(f'.{y}', __package__)",
        "q_p/one/near.py": "from .... import too_far",
        "q_p/one/lazy.py": "",
        "q_p/two.py": "",
        "q_p/unused.py": "",
    }
    assert project(modules, "q_p.one.env") == sorted(set(modules) - {"q_p/unused.py"})


def test_an_installed_package_counts_where_it_is_named_and_no_further():
    """A class of an installed package is one's own choice; what that package imports is not."""
    names = {path.name for path in module_files(["yaml.tokens"])}
    assert names >= {"__init__.py", "tokens.py"}
    assert all("yaml" in path.parts for path in module_files(["yaml.tokens"]))


def test_installed_packages_are_named_as_their_distributions(project):
    """Python's own modules, what every trial records, and what is not there are left out."""
    modules = {
        "q_env.py": "import json, numpy, q_help, q_missing",
        "q_help.py": "def load():\n    from yaml import tokens\n",
        "q_plain.py": "import json",
    }
    assert project(modules, "q_env") == ["q_env.py", "q_help.py"]
    assert installed_imports(["q_env"]) == {"PyYAML"}
    assert installed_imports(["q_plain"]) == set()
