"""Import paths: each way to fail has one clear message."""

import re
import sys

import pytest

from rltune_envs.errors import ImportPathError
from rltune_envs.imports import load_object

MODULES = {
    "rl_fine.py": "class MyEnv:\n    pass\n\ndef score(attempt):\n    return 1.0\n\nLIMIT = 3\n",
    "rl_empty.py": "",
    "rl_broken.py": "raise RuntimeError('no licence')\n",
    "rl_exit.py": "import os\nos._exit(3)\n",
    "rl_typo.py": "def score(:\n",
    "rl_needs.py": "import rl_not_installed.part\n",
    "rl_needs_more.py": "import rl_needs_mo\n",
    "rl_package/__init__.py": "",
    "rl_package/inner.py": "from rl_package import lost\n",
    "rl_package/deep.py": "import rl_package.lost\n",
}


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.startswith("rl_")]:
        del sys.modules[name]


def test_what_a_path_names():
    import rl_fine

    assert load_object("rl_fine:MyEnv") is rl_fine.MyEnv
    assert load_object("rl_fine:score") is rl_fine.score
    assert load_object("os.path:join") is __import__("os").path.join


@pytest.mark.parametrize(
    "path",
    ["", "rl_fine", "rl_fine.MyEnv", ":MyEnv", "rl_fine:", "rl_fine:a:b", "rl_fine:a.b", "./x:y",
     "rl fine:MyEnv", "rl_fine: MyEnv", ".rl_fine:MyEnv", "rl_fine.:MyEnv", "my-pkg:MyEnv"],
)  # fmt: skip
def test_a_path_of_another_form(path):
    message = f"{path!r} is not an import path; write it as my_pkg.my_mod:MyEnv"
    with pytest.raises(ImportPathError, match=f"^{re.escape(message)}$"):
        load_object(path)


ADVICE = "install its package, or add its folder to PYTHONPATH"
FAILURES = [
    ("rl_nowhere:A", f"there is no module 'rl_nowhere'; {ADVICE}"),
    ("rl_nowhere.part:A", f"there is no module 'rl_nowhere'; {ADVICE}"),
    ("rl_package.nowhere:A", f"there is no module 'rl_package.nowhere'; {ADVICE}"),
    ("rl_exit:A", "importing 'rl_exit' raised SystemExit: os._exit(3)"),
    ("rl_fine.part:A", f"there is no module 'rl_fine.part'; {ADVICE}"),
    (
        "rl_needs:A",
        "importing 'rl_needs' raised ModuleNotFoundError: No module named 'rl_not_installed'",
    ),
    (
        "rl_needs_more:A",
        "importing 'rl_needs_more' raised ModuleNotFoundError: No module named 'rl_needs_mo'",
    ),
    (
        "rl_package.deep:A",
        "importing 'rl_package.deep' raised ModuleNotFoundError: No module named 'rl_package.lost'",
    ),
    ("rl_broken:A", "importing 'rl_broken' raised RuntimeError: no licence"),
    ("rl_fine:MyEmv", "the module 'rl_fine' has no 'MyEmv'; did you mean 'MyEnv'?"),
    ("rl_fine:Q", "the module 'rl_fine' has no 'Q'; it has LIMIT, MyEnv, score"),
    ("rl_empty:Q", "the module 'rl_empty' has no 'Q'; it has nothing"),
]


@pytest.mark.parametrize(("path", "cause"), FAILURES, ids=[path for path, _ in FAILURES])
def test_a_path_that_leads_nowhere(path, cause):
    with pytest.raises(ImportPathError, match=f"^{re.escape(f'{path!r}: {cause}')}"):
        load_object(path)


@pytest.mark.parametrize("name", ["rl_typo", "rl_package.inner"])
def test_an_error_inside_the_module(name):
    with pytest.raises(ImportPathError, match=f"importing '{name}' raised (Syntax|Import)Error: "):
        load_object(f"{name}:A")


def test_what_cannot_be_called():
    message = "'rl_fine:LIMIT' is 3; a class or a function is needed"
    with pytest.raises(ImportPathError, match=f"^{message}$"):
        load_object("rl_fine:LIMIT")
