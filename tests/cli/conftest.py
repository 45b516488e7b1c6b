"""The run folders of tests/report, and the command line in this process."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "report"))


@dataclass(frozen=True)
class Result:
    """What one command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def rltune(tmp_path, monkeypatch, capsys):
    """Run one command in an empty folder, 80 columns wide, off a terminal."""
    from rltune.cli.entry import run

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("RLTUNE_RUNS_DIR", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str) -> Result:
        capsys.readouterr()
        code = run(arguments)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture
def run(finished, tmp_path):
    """A copy of the module's `finished` run folder, in the newest place of `runs`."""
    import torch

    from rltune.store.rundir import RunDir

    path = tmp_path / "runs" / finished.name
    shutil.copytree(finished, path, symlinks=True)
    before = torch.get_num_threads()
    yield RunDir(path)
    torch.set_num_threads(before)


@pytest.fixture
def trial(run):
    """The only trial of `run` that has begun."""
    (found,) = run.trial_dirs()
    return found
