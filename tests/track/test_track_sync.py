"""What `wandb sync` says is believed only where it leaves its mark."""

from rltune.track.sync import upload


def test_a_session_without_a_run_is_not_uploaded_although_the_command_ends_well(tmp_path):
    session = tmp_path / "wandb" / "offline-run-20260101_000000-x"  # a kill left it empty
    session.mkdir(parents=True)
    assert upload([session], timeout_s=60.0) == "wandb: No runs to sync."
