"""A rank that ends ends its trial, by name; ranks end with their trial and leave nothing."""

import os
import re
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from rank_cases import fall
from small_config import config_of
from torch.distributed import distributed_c10d

from rltune.errors import RankDiedError
from rltune.policy.load import policy_of
from rltune.trainer.ranks import launch
from rltune.trainer.ranks.launch import ranks_for
from rltune.trainer.ranks.process import start_rank
from rltune.trainer.train_state import make_train_state

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("killed", r"rank 1 of 3 \(process \d+\) ended by signal 9 in update of step 7\. If"),
        ("raises", r"rank 2 of 3 .* with exit code 1 in update of step 7: ValueError: a bad day\."),
        (
            "stopped",
            r"rank 1 of 3 .* no sign of life for 8 s, and was ended, in update of step 7\.",
        ),
    ],
)
def test_a_rank_that_falls_is_named_within_seconds(tmp_path, how, text, monkeypatch):
    for module in ("watch", "blame") if how == "stopped" else ():  # others end slowly under load
        monkeypatch.setattr(f"rltune.trainer.ranks.{module}.SILENT_BEATS", 8)
    config, rank = config_of(resources__ranks=3), 2 if how == "raises" else 1
    with ranks_for(config, trial=tmp_path, base=Path.cwd()) as group:
        state = make_train_state(policy_of(config, Path.cwd(), device="cpu"), config, group)
        began = time.monotonic()
        with pytest.raises(RankDiedError, match=text):
            group.everywhere("update of step 7", fall, state, rank, how)
    assert time.monotonic() - began < 60  # and not the ten minutes of an exchange


def test_a_rank_that_lives_and_does_not_come_is_named(tmp_path, monkeypatch):
    """torch itself says only that it has waited; here twenty seconds."""
    monkeypatch.setattr("rltune.trainer.ranks.join._TIMEOUT", timedelta(seconds=20))
    config = config_of(resources__ranks=3)
    text = r"rank 1 of 3 .* did not come to the others in update of step 7: it lives, but it has "
    with ranks_for(config, trial=tmp_path, base=Path.cwd()) as group:
        state = make_train_state(policy_of(config, Path.cwd(), device="cpu"), config, group)
        with pytest.raises(RankDiedError, match=text + r"begun 0 of 1 exchanges") as raised:
            group.everywhere("update of step 7", fall, state, 1, "late")
    assert "most recent call first" in raised.value.__notes__[0]


def test_a_rank_that_cannot_start_says_why(tmp_path):
    config = config_of(resources__ranks=3, policy__model=str(tmp_path / "gone"))
    began = time.monotonic()
    with (
        pytest.raises(RankDiedError, match=r"rank \d of 3 .* in the start: InputError: .*gone"),
        ranks_for(config, trial=tmp_path, base=Path.cwd()),
    ):
        pass
    assert time.monotonic() - began < 60  # and not the ten minutes of an exchange


def test_a_rank_that_falls_before_it_has_met_the_others_is_named(tmp_path, monkeypatch):
    """torch would wait ten minutes for it, and cannot be interrupted."""
    # Ranks meet under the number of groups that their process has made; this one is left alone.
    monkeypatch.setattr(distributed_c10d, "_group_count", 0)
    meet = launch.join

    def join_late(setup):
        started[0].process.kill()
        started[0].process.wait()
        return meet(setup)

    started = []
    monkeypatch.setattr(
        launch, "start_rank", lambda *args: started.append(start_rank(*args)) or started[-1]
    )
    monkeypatch.setattr(launch, "join", join_late)
    with (
        pytest.raises(RankDiedError, match=r"rank 1 of 3 .* ended by signal 9 in the start\."),
        ranks_for(config_of(resources__ranks=3), trial=tmp_path, base=Path.cwd()),
    ):
        pass


def test_a_rank_looks_for_the_run_of_a_reference_where_its_trial_does(tmp_path):
    trial = tmp_path / "elsewhere" / "run" / "trials" / "one"
    trial.mkdir(parents=True)
    (trial.parents[1] / "plan.json").write_text("{}")
    config = config_of(resources__ranks=2, policy__model="trial:gone/one")
    place = re.escape(f"'gone', which is neither in {tmp_path}/elsewhere nor")
    with (
        pytest.raises(RankDiedError, match=place),
        ranks_for(config, trial=trial, base=Path.cwd()),
    ):
        pass


SCRIPT = """
import sys, time
from pathlib import Path
from small_config import config_of
from rltune.trainer.ranks.launch import ranks_for
with ranks_for(config_of(resources__ranks=2), trial=Path("trial"), base=Path.cwd()) as group:
    others = group._others.ranks
    print(others[0].process.pid, others[0].errors.parent, flush=True)
    time.sleep(600)
"""


def runs(pid):
    """Tell whether a process is more than an entry that nobody has asked for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_ranks_end_with_their_trial_and_leave_nothing(tmp_path):
    path = os.pathsep.join(entry for entry in sys.path if entry)
    trial = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    pid, folder = trial.stdout.readline().split()
    os.kill(trial.pid, signal.SIGKILL)
    trial.wait()
    trial.stdout.close()
    until = time.monotonic() + 30
    while Path(folder).exists() or runs(pid):
        assert time.monotonic() < until, (pid, folder)
        time.sleep(0.05)


def test_a_trial_that_ends_while_its_ranks_start_leaves_no_files(tmp_path):
    folder = tmp_path / "ranks"
    folder.mkdir()
    rank = start_rank(1, folder)
    rank.connection.close()
    rank.process.stdin.close()  # as the system does for a trial that is killed
    rank.process.wait(120)
    os.close(rank.beats)
    assert not folder.exists()
