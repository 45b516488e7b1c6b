"""Which rank an error is about; the processes are of another program."""

import subprocess
import sys
from multiprocessing.connection import Pipe

import pytest

from rltune.trainer.ranks.blame import (
    died_error,
    first_to_end,
    is_consequence,
    is_timeout,
    late_error,
    late_ranks,
)
from rltune.trainer.ranks.process import RankProcess
from rltune.trainer.ranks.watch import Sign

LOST = RuntimeError("RuntimeError: gloo: Connection closed by peer [127.0.0.1]:4")
FELL = RuntimeError("ValueError: a bad day")
WAITED = RuntimeError("RuntimeError: gloo/transport: Timed out waiting 600000ms for recv operation")
LIVES = """
import faulthandler, signal, time
faulthandler.register(signal.SIGUSR1)
print(flush=True)
time.sleep(600)
"""


@pytest.fixture
def make_rank(tmp_path):
    """Return a maker of ranks that live, or have ended by `code` after they told an error."""
    made = []

    def make(number, *, code=None, told=None):
        ours, theirs = Pipe()
        errors = tmp_path / f"stderr-{number}"
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-c", LIVES if code is None else f"raise SystemExit({code})"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
            )
        if told is not None:
            theirs.send(told)
        theirs.close()
        process.stdout.readline()  # it has begun, or has ended
        process.stdout.close()
        if code is not None:
            process.wait()
        made.append(process)
        return RankProcess(number, process, ours, -1, errors)

    yield make
    for process in made:
        process.kill()
        process.wait()
        process.stdin.close()


@pytest.mark.parametrize(
    ("error", "consequence", "timeout"),
    [
        (LOST, True, False),
        (WAITED, True, True),
        (RuntimeError("NCCL watchdog: collective operation timeout"), True, True),
        (ValueError("timed out"), False, False),
        (None, False, False),
    ],
)
def test_what_an_error_says_of_other_ranks(error, consequence, timeout):
    assert (is_consequence(error), is_timeout(error)) == (consequence, timeout)


def test_who_ended_without_a_word_was_the_first_and_who_lost_it_was_not(make_rank):
    lives = make_rank(1)
    assert first_to_end([lives]) is None
    lost, fell = (make_rank(n, code=1, told=told) for n, told in ((2, LOST), (3, FELL)))
    rank, error = first_to_end([lives, lost, fell])
    assert (rank, str(error)) == (fell, "ValueError: a bad day")
    killed = make_rank(4, code=9)
    assert first_to_end([lives, lost, fell, killed]) == (killed, None)
    text = str(died_error(rank, error, "update of step 7", size=5, is_silent=False))
    place = f"rank 3 of 5 (process {fell.process.pid}) ended with exit code 1 in update of step 7"
    assert text.startswith(f"{place}: ValueError: a bad day.")


def test_who_lives_and_has_begun_less_is_late(make_rank):
    ranks = [make_rank(1), make_rank(2), make_rank(3, code=1, told=WAITED), make_rank(4)]
    signs = {1: Sign(41, "a"), 2: Sign(40, "b"), 3: Sign(7, "c")}
    assert late_ranks(ranks, signs, 41) == [ranks[1]]  # the third has ended, of the fourth is none
    assert late_ranks(ranks, signs, 40) == []


@pytest.mark.slow
def test_a_late_rank_is_named_with_its_call_and_where_it_is(make_rank):
    rank = make_rank(2)
    error = late_error(
        rank, Sign(37, "scoring of step 7"), "update of step 7", size=3, exchanges=41
    )
    assert str(error) == (
        f"rank 2 of 3 (process {rank.process.pid}) did not come to the others in update of step 7: "
        "it lives, but it has begun 37 of 41 exchanges with them, the last in scoring of step 7. "
        "The trial's log says where it is. The same command goes on from the last checkpoint"
    )
    (note,) = error.__notes__
    assert "most recent call first" in note
