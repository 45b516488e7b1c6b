"""The run folders of tests/report, and the command line in this process."""

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
