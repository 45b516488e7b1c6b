import subprocess
import sys

from rltune.runner.environment import (
    RAY_FOLDER,
    apply_ray_environment,
    make_ray_folder,
    remove_ray_folders,
)
from rltune.runner.logfile import logging_to
from rltune.runner.trial import describe_failure


def test_a_clusters_folder_goes_with_its_launch(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    tune = tmp_path / "tune"
    folders = [make_ray_folder(tune / f"launch-000{i}") for i in (1, 2)]
    (folders[0] / "session").mkdir()
    (folders[0] / "session" / "log").write_text("x")
    remove_ray_folders(tune)
    assert not any(folder.exists() for folder in folders)
    assert sorted(path.name for path in tune.rglob("*")) == ["launch-0001", "launch-0002"]


def test_a_note_that_names_something_else_deletes_nothing(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    note = tmp_path / "tune" / "launch-0001" / RAY_FOLDER
    note.parent.mkdir(parents=True)
    note.write_text(str(precious))
    remove_ray_folders(tmp_path / "tune")
    assert precious.is_dir()
    assert not note.exists()


def test_a_private_cluster_has_a_token_of_its_own(monkeypatch):
    monkeypatch.setattr("os.environ", environ := {})
    apply_ray_environment(None)
    assert environ["RAY_AUTH_MODE"] == "token"
    assert len(environ["RAY_AUTH_TOKEN"]) == 64


def test_trials_of_a_private_cluster_run_where_the_driver_does(monkeypatch):
    monkeypatch.setattr("os.environ", environ := {"RAY_RUNTIME_ENV_HOOK": "a.b"})
    apply_ray_environment(None)
    assert environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] == "0"  # `uv run` is a hook, too
    assert "RAY_RUNTIME_ENV_HOOK" not in environ


def test_what_a_person_set_for_ray_stays(monkeypatch):
    monkeypatch.setattr("os.environ", environ := {"RAY_AUTH_MODE": "disabled"})
    apply_ray_environment(None)
    assert environ["RAY_AUTH_MODE"] == "disabled"
    assert "RAY_AUTH_TOKEN" not in environ


def test_no_key_of_the_environment_is_in_a_trial_s_records(monkeypatch, tmp_path):
    monkeypatch.setenv("SOME_API_KEY", key := "sk-0123456789")
    try:
        raise RuntimeError(f"401 for Bearer {key}")
    except RuntimeError as error:
        failure = describe_failure(error, step=1, attempt=1)
        with logging_to(tmp_path / "log", level="info") as log:
            log.exception("failed with %s", key)
    assert "401 for Bearer ***" in failure.reason
    for text in (failure.reason, failure.traceback, (tmp_path / "log").read_text()):
        assert key not in text
        assert "***" in text


def test_a_note_that_is_no_text_is_no_obstacle(tmp_path):
    note = tmp_path / "launch-0001" / RAY_FOLDER
    note.parent.mkdir()
    note.write_bytes(b"\xff\xfe")
    remove_ray_folders(tmp_path)
    assert not note.exists()


_AFTER_AN_ABORT = """
from rltune.runner.environment import apply_ray_environment
apply_ray_environment(None)
import ray
try:
    ray.put(1)
except Exception as error:
    print(ray.is_initialized(), type(error).__name__)
"""


def test_no_cluster_starts_unasked(tmp_path):
    """Tune's thread outlives the abort of a launch, and its next call would start another."""
    command = [sys.executable, "-c", _AFTER_AN_ABORT]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout == "False RaySystemError\n"
