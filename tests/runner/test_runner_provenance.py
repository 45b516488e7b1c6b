import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import rltune
from rltune.comparability.audit_provenance import SAME_EVERYWHERE
from rltune.runner import provenance
from rltune.runner.provenance import (
    PACKAGES,
    CodeState,
    DriverProvenance,
    _git,
    code_of_worker,
    code_state,
    earlier_attempts,
    graders,
    source_digest,
    trial_provenance,
    versions,
)
from rltune.spec.schema.trial import TrialConfig

CODE_STATE = "from rltune.runner.provenance import code_state as c; import json; s = c(); "
CODE_STATE += "print(json.dumps([s.commit, s.dirty, s.diff_sha256, s.source_sha256]))"


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def state_of_process(folder: Path) -> CodeState:
    """Return what a process that runs the rltune in `folder` finds."""
    path = os.pathsep.join(map(str, (folder, folder / "envs")))
    done = subprocess.run(
        [sys.executable, "-c", CODE_STATE],
        env={**os.environ, "PYTHONPATH": path},
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return CodeState(*json.loads(done.stdout))


def state_of(folder: Path) -> CodeState:
    """Return what this process would find if it ran the rltune in `folder`."""
    parts = (folder / "rltune", folder / "envs" / "rltune_envs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "_FOLDERS", parts)
        # As they were when this file was imported: the tests of a process share one answer.
        patch.setattr(provenance, "source_digest", source_digest)
        patch.setattr(provenance, "_git", partial(_git, at=parts[0]))
        return provenance.code_state()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a copy of the packages."""
    root = Path(rltune.__file__).parent.parent
    folder = tmp_path_factory.mktemp("checkout")
    for part in ("rltune", "envs/rltune_envs"):
        for path in (root / part).rglob("*.py"):
            target = folder / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    (folder / ".gitignore").write_text("__pycache__\n")
    (folder / "README.md").write_text("hello\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


@pytest.fixture(scope="module")
def clean(checkout: Path) -> CodeState:
    """What is found of the repository as committed."""
    return state_of(checkout)


def test_a_clean_checkout_is_its_commit(checkout, clean):
    state = clean
    assert state == state_of_process(checkout)
    assert state.commit == git(checkout, "rev-parse", "HEAD")
    assert (state.dirty, state.diff_sha256) == (False, "")
    assert state.label == state.commit


def test_a_readme_does_not_make_the_code_dirty(checkout):
    (checkout / "README.md").write_text("changed\n")
    assert not state_of(checkout).dirty


@pytest.mark.parametrize("name", ["rltune/errors.py", "rltune/added.py"])
def test_changed_and_new_files_make_it_dirty(checkout, clean, name):
    path = checkout / name
    before = path.read_bytes() if path.exists() else None
    digests = set()
    try:
        for line in ("# one\n", "# two\n"):
            path.write_bytes((before or b"") + line.encode())
            state = state_of(checkout)
            assert state.dirty
            assert state.label == f"{state.commit}-dirty"
            assert state.source_sha256 != clean.source_sha256
            digests.add(state.diff_sha256)
    finally:
        path.unlink() if before is None else path.write_bytes(before)
    assert len(digests) == 2


def test_without_git_the_version_stands_for_the_commit(checkout, tmp_path):
    # Also inside a repository of something else: a virtual environment in a project.
    git(tmp_path, "init", "-q")
    inner = tmp_path / "venv"
    subprocess.run(["cp", "-r", str(checkout), str(inner)], check=True)
    subprocess.run(["rm", "-rf", str(inner / ".git")], check=True)
    state = state_of(inner)
    assert len(state.commit) < 40
    assert (state.dirty, state.diff_sha256) == (False, "")
    assert len(state.source_sha256) == 64


def test_a_worker_with_other_files_says_so():
    here = code_state()
    assert code_of_worker(here) == here
    elsewhere = code_of_worker(replace(here, source_sha256="0" * 64))
    assert elsewhere.dirty
    assert elsewhere.diff_sha256 == source_digest()


def test_provenance_has_every_field_that_the_audit_compares():
    record = trial_provenance(
        DriverProvenance(code_state(), ("rltune", "sweep")),
        TrialConfig(policy={"model": "tiny"}, env={"prompt": "compact"}),
        attempt=2,
        device="cpu",
        manifest_sha256="m",
        base=Path("work"),
        inputs={"my_env.py": "e"},
    )
    assert set(SAME_EVERYWHERE) <= set(record)
    (earlier,) = earlier_attempts(record)
    assert {*SAME_EVERYWHERE, "attempt", "host", "started", "source_sha256"} <= set(earlier)
    assert all(earlier[name] == record[name] for name in earlier)
    again = earlier_attempts({**record, "attempt": 3, "earlier": [earlier]})
    assert [attempt["attempt"] for attempt in again] == [2, 3]
    assert earlier_attempts({}) == []
    assert record["base"] == str(Path.cwd() / "work")
    assert earlier["inputs"] == {"my_env.py": "e"}
    assert record["argv"] == ["rltune", "sweep"]
    assert record["cpu_model"]


def test_versions_name_python_and_every_package():
    found = versions()
    assert set(found) == {"python", *PACKAGES}
    assert all(found.values())


@pytest.mark.parametrize(
    ("env", "packages"),
    [
        ({"source": "reasoning_gym:gcd"}, {"reasoning-gym", "sympy"}),
        ({"train": "p.jsonl", "verifier": "boxed"}, set()),
        (
            {"train": "p.jsonl", "verifier": {"kind": "boxed", "compare": "math_verify"}},
            {"math-verify", "sympy"},
        ),
        ({"kind": "verifiers", "id": "my-taskset"}, {"verifiers"}),
        ({"kind": "custom", "factory": "examples.my_env:MyEnv"}, set()),
    ],
)
def test_packages_that_grade_are_recorded_where_they_do(env, packages):
    config = TrialConfig.model_validate(
        {"env": {"kind": "verified", **env}, "policy": {"model": "some/model"}}
    )
    found = versions(graders(config))
    assert set(found) == {"python", *PACKAGES, *packages}
    assert versions(found) == found  # as a rerun compares them
