"""Whose exception it is: of an environment of one's own, or of somebody else."""

import sys

import pytest

from rltune.errors import InputError, StoreError
from rltune.spec.schema.env import CustomEnvConfig, SokobanConfig
from rltune.trainer.custom_env import naming_custom_env
from rltune_envs.imports import load_object

CODE = "import json\n\ndef make(text):\n    return json.loads(text)\n"


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Write a module of one's own; return its file, its env section and what it names."""
    file = tmp_path / "shop" / "coins.py"
    file.parent.mkdir()
    file.with_name("__init__.py").touch()
    file.write_text(CODE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    env = CustomEnvConfig(factory="shop.coins:make")
    yield file, env, load_object(env.factory)
    for name in ("shop", "shop.coins"):
        sys.modules.pop(name, None)


def test_the_deepest_line_of_ones_own_is_named(own):
    file, env, make = own
    with pytest.raises(InputError) as caught, naming_custom_env(env):
        make("")  # json raises, three calls below line 4
    assert str(caught.value) == (
        "env shop.coins:make: it raised JSONDecodeError: Expecting value: line 1 column 1 (char 0) "
        f"({file}:4, in make). Repair it, and give the same command again."
    )


def test_what_others_raise_goes_on_as_it_is(own):
    _, env, make = own
    with pytest.raises(KeyError), naming_custom_env(env):
        {}["gone"]
    with pytest.raises(ValueError, match="Expecting value"), naming_custom_env(SokobanConfig()):
        make("")
    with pytest.raises(StoreError), naming_custom_env(env):
        raise StoreError("edited")
