"""README, .ci/run and pyproject.toml name the same commands, extras and markers."""

import re
import tomllib

import pytest
from literals import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
CI = [line.strip() for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
COMMANDS = [  # of the blocks, comments left out
    line
    for block in re.findall(r"^```bash\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if line and not line.startswith("#")
]
FIRST = next(command for command in COMMANDS if "rltune sweep" in command)


def extras(command):
    return {name for names in re.findall(r"'\.\[([\w,]+)\]'", command) for name in names.split(",")}


def test_ci_runs_the_test_command_of_the_readme_as_it_stands():
    (command,) = [command for command in COMMANDS if command.endswith("pytest")]
    assert command in CI


def test_ci_runs_the_sweep_of_the_first_command():
    sweep = FIRST.rpartition("&& ")[2]
    assert sweep.startswith("rltune sweep sweeps/")
    assert CI.count(f'{sweep} --runs-dir "$runs"') == 1


@pytest.mark.parametrize("command", [line for line in COMMANDS if "pip install" in line])
def test_what_the_readme_installs_exists(command):
    assert extras(command) <= set(EXTRAS)
    for path in re.findall(r"-c (\S+)", command):
        assert (ROOT / path).is_file()


def test_the_tests_need_nothing_that_the_second_command_does_not_install():
    needed = {name for extra in extras(FIRST) for name in EXTRAS[extra]}
    assert needed <= set(EXTRAS["dev"])


def test_slow_tests_are_left_out_unless_asked_for_as_ci_does():
    options = PROJECT["tool"]["pytest"]["ini_options"]
    assert "-m 'not slow'" in options["addopts"]
    assert [marker for marker in options["markers"] if marker.startswith("slow:")]
    assert "pytest -m slow" in CI
    assert "`pytest -m slow`" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
