"""Real processes: many writers of one table, and a writer that is killed."""

import signal
import subprocess
import sys

from rltune.lineage.row import LineageRow
from rltune.lineage.table import LineageStore
from rltune.types import RowStatus

METRIC = ("heldout/success_rate", "max")
TEXT = 'tab\t newline\n return\r quote" backslash\\ é ' + "x" * 300

WRITE = """
import os, sys
from pathlib import Path
from rltune.lineage.table import LineageStore
from rltune.lineage.row import LineageRow
from rltune.types import RowStatus
path, who, n, text = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]

def write(writer):
    store = LineageStore(path, "heldout/success_rate", "max")
    parent = ""
    for i in range(n):
        parent = store.append(LineageRow(
            exp_id=f"{writer}-{i}", status=RowStatus.KEEP, parent_exp=parent, hypothesis=text,
            metric_name="heldout/success_rate", metric_mode="max", core_metric=i / 7, seed=i,
        )).exp_id
        print(parent, flush=True)

"""
WRITER = f"""{WRITE}
print("ready", flush=True)
sys.stdin.readline()
write(who)
"""
WRITERS = f"""{WRITE}
gate, end = os.pipe()
children = []
for i in range(int(who)):
    if child := os.fork():
        children.append(child)
        continue
    os.close(end)
    os.read(gate, 1)  # until it is closed
    write(f"w{{i}}")
    sys.exit()
os.close(end)  # all begin at the same moment, on a table that does not exist yet
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


def start(path, writer, n):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), writer, str(n), TEXT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def go(processes):
    """Release all writers at the same moment, on a table that does not exist yet."""
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()


def test_sixteen_processes_lose_and_damage_nothing(tmp_path):
    """A.3: a header race there. 16 x 500 rows: `python benchmarks/lineage.py`."""
    path = tmp_path / "results.tsv"
    writers = [f"w{i}" for i in range(16)]
    command = [sys.executable, "-c", WRITERS, str(path), "16", "25", TEXT]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    rows, problems = LineageStore(path, *METRIC).read()
    assert problems == ()
    assert len(path.read_bytes().splitlines()) == 1 + 16 * 25  # one header, one line a record
    by_writer = {
        writer: [row for row in rows if row.exp_id.startswith(f"{writer}-")] for writer in writers
    }
    for writer, mine in by_writer.items():
        assert [row.exp_id for row in mine] == [f"{writer}-{i}" for i in range(25)]
        assert [row.core_metric for row in mine] == [i / 7 for i in range(25)]
        assert {row.hypothesis for row in mine} == {TEXT}
    assert not path.with_name("results.tsv.torn").exists()


def test_a_killed_writer_loses_nothing_it_reported_and_blocks_nobody(tmp_path):
    path = tmp_path / "results.tsv"
    for kill_after in (1, 7, 20):
        process = start(path, f"k{kill_after}", 100_000)
        go([process])
        reported = [process.stdout.readline().strip() for _ in range(kill_after)]
        process.send_signal(signal.SIGKILL)
        reported += process.communicate()[0].split()
        store = LineageStore(path, *METRIC, lock_timeout_s=5)
        found = {row.exp_id for row in store.read().rows}
        assert found >= set(reported)
        store.append(
            LineageRow(
                exp_id=f"after-{kill_after}",
                status=RowStatus.DISCARD,
                metric_name=METRIC[0],
                metric_mode="max",
            )
        )
        rows, problems = store.read()
        assert problems == ()
        assert rows[-1].exp_id == f"after-{kill_after}"


def test_writers_killed_among_others_leave_a_readable_table(tmp_path):
    path = tmp_path / "results.tsv"
    processes = [start(path, f"w{i}", 80) for i in range(4)]
    go(processes)
    reported = [processes[i].stdout.readline().strip() for i in range(2)]  # they are under way
    for process in processes[:2]:
        process.send_signal(signal.SIGKILL)
    for process in processes:
        reported += process.communicate()[0].split()
    assert [process.returncode for process in processes[2:]] == [0] * 2
    rows, problems = LineageStore(path, *METRIC).read()
    assert problems == ()
    assert {row.exp_id for row in rows} >= set(reported)
    assert path.read_bytes().count(b"exp_id\t") == 1
