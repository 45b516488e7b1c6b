import json
import re
import sys
import tempfile
import tomllib
from pathlib import Path

from rltune.cli import doctor
from rltune.cli.doctor import Check, State
from rltune.runner import machine

ROOT = Path(__file__).parents[2]


def test_a_long_temporary_folder_is_passed_over(monkeypatch, tmp_path):
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setenv("RAY_TMPDIR", str(long))
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    check = doctor.temporary_folder()
    assert (check.state, check.detail) == (State.OK, "/tmp for sockets (at most 23 bytes)")
    monkeypatch.setattr(machine, "_SYSTEM", ())
    check = doctor.temporary_folder()
    assert check.state is State.MISSING
    assert check.action == "Set RAY_TMPDIR to a writable folder with a shorter path."


def test_variables_that_ray_refuses(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "auto")  # a sweep names its address itself
    monkeypatch.setenv("TUNE_RESULT_DIR", "/x")
    (check,) = doctor.ray_environment()
    assert (check.state, check.action) == (State.MISSING, "unset TUNE_RESULT_DIR")
    monkeypatch.delenv("TUNE_RESULT_DIR")
    assert list(doctor.ray_environment()) == []


def test_disk_looks_at_the_folder_that_exists(tmp_path):
    check = doctor.disk(tmp_path / "a" / "b")
    assert str(tmp_path) in check.detail
    assert check.state is not State.MISSING
    assert not list(tmp_path.iterdir())


def test_disk_that_holds_no_runs_is_missing(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    nothing = "nothing can be written to /proc (No such file or directory)"
    found = {
        tmp_path / "file": f"{tmp_path}/file is a file",
        tmp_path / "file" / "runs": f"{tmp_path}/file is a file",
        Path("/proc/x"): nothing,
    }
    for runs_dir, detail in found.items():
        check = doctor.disk(runs_dir)
        assert (check.state, check.detail) == (State.MISSING, detail)
        assert check.action == "Give another folder with --runs-dir or RLTUNE_RUNS_DIR."


def test_missing_package_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(doctor, "PACKAGES", ("numpy", "no-such-package-here"))
    check = doctor.packages()
    assert check.state is State.MISSING
    assert check.action == "pip install no-such-package-here"


def test_without_psutil_the_memory_is_unknown(monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    check = doctor.memory()
    assert (check.state, check.detail) == (State.WARNING, "unknown without psutil")


def test_the_packages_are_the_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [re.match(r"[\w-]+", one)[0] for one in sorted(project["dependencies"])] == [
        *doctor.PACKAGES
    ]


def test_cheap_checks_pass_here():
    for check in (doctor.python(), doctor.packages(), doctor.threads()):
        assert check.state is State.OK


def test_exit_code_and_verdict(rltune, monkeypatch):
    checks = [Check("python", State.OK, "3.11"), Check("torch", State.MISSING, "no", "pip install")]
    monkeypatch.setattr(doctor, "diagnose", lambda runs_dir: iter(checks))
    result = rltune("doctor")
    assert result.code == 1
    assert result.out.splitlines() == [
        "ok      python: 3.11",
        "MISSING torch: no",
        "        -> pip install",
        "Not ready: torch.",
    ]
    assert json.loads(rltune("doctor", "--json").out)["ok"] is False
    monkeypatch.setattr(doctor, "diagnose", lambda runs_dir: iter(checks[:1]))
    result = rltune("doctor")
    assert result.code == 0
    assert result.out.splitlines()[-1] == "Ready. Next: rltune sweep sweeps/quickstart.yaml"
