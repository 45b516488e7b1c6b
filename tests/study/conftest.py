"""A study of two sweeps in a project folder; the first one's run folder is made by hand."""

import pytest
from run_folders import SWEEP
from study_project import Project


@pytest.fixture
def sweep_text() -> str:
    """The text of the project's first sweep."""
    return SWEEP


@pytest.fixture(scope="session")
def make_project():
    """Make a project in a folder; given a text, with another first sweep."""
    return Project


@pytest.fixture
def project(tmp_path, sweep_text) -> Project:
    return Project(tmp_path, sweep_text)


@pytest.fixture
def rltune(project, monkeypatch, capsys):
    """Run one command in the project's folder, 100 columns wide."""
    from rltune.cli.entry import run

    monkeypatch.chdir(project.root)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("RLTUNE_RUNS_DIR", raising=False)

    def call(*arguments):
        capsys.readouterr()
        code = run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
