"""Robustness and speed of the lineage table.

    python benchmarks/lineage.py [--writers 16] [--rows 500] [--long 100000]

Writers: that many processes append to one table that does not exist yet, each row its own lock,
check, write and fsync. Then the same again while writers are killed at random and started anew.
Long: a table of that many rows answers `best` and `chain`, is read whole, and takes one more row.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rltune.lineage.row import HEADER, LineageRow, encode_row
from rltune.lineage.table import LineageStore
from rltune.types import RowStatus

METRIC = {"metric_name": "heldout/success_rate", "metric_mode": "max"}
WRITER = """
import sys
from pathlib import Path
from rltune.lineage.table import LineageStore
from rltune.lineage.row import LineageRow
from rltune.types import RowStatus
path, name, n = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
store = LineageStore(path, "heldout/success_rate", "max", lock_timeout_s=600)
print("ready", flush=True)
sys.stdin.readline()
parent = ""
for i in range(n):
    parent = store.append(LineageRow(
        exp_id=f"{name}-{i}", status=RowStatus.KEEP, parent_exp=parent, seed=i, core_metric=i / 7,
        hypothesis="tab\\t newline\\n quote\\" " + "x" * 200,
        metric_name="heldout/success_rate", metric_mode="max",
    )).exp_id
    print(parent, flush=True)
"""


def start(path: Path, name: str, rows: int) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", WRITER, str(path), name, str(rows)]
    return subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )


def release(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def check(path: Path, expected: set[str]) -> int:
    """Return the number of rows; stop when one is missing or unreadable."""
    store = LineageStore(path, *METRIC.values())
    read = store.read()
    # A writer killed inside its last write leaves a torn tail until the next append.
    assert all("torn last line" in str(problem) for problem in read.problems), read.problems
    names = {row.exp_id for row in read.rows}
    assert names >= expected, sorted(expected - names)[:5]
    assert path.read_text().count(HEADER) == 1
    return len(names)


def writers(folder: Path, n: int, rows: int) -> None:
    path = folder / "writers.tsv"
    processes = [start(path, f"w{i}", rows) for i in range(n)]
    release(processes)
    began = time.monotonic()
    printed = [process.communicate()[0].split() for process in processes]
    wall = time.monotonic() - began
    assert all(process.returncode == 0 for process in processes)
    count = check(path, {name for names in printed for name in names})
    assert count == n * rows == len(path.read_bytes().splitlines()) - 1
    print(
        f"{n} writers x {rows} rows: {count:,} valid rows, one header, {wall:.0f} s, "
        f"{count / wall:.0f} rows/s"
    )


def killed(folder: Path, n: int, rows: int) -> None:
    path, rng = folder / "killed.tsv", random.Random(0)
    reported: set[str] = set()
    kills = 0
    for wave in range(4):
        processes = [start(path, f"k{wave}-{i}", rows // 4) for i in range(n)]
        release(processes)
        for process in rng.sample(processes, n // 2):
            time.sleep(rng.uniform(0.01, 0.3))
            process.send_signal(signal.SIGKILL)
        for process in processes:
            reported |= set(process.communicate()[0].split())
            kills += process.returncode == -signal.SIGKILL
        check(path, reported)
    count = check(path, reported)
    torn = path.with_name(path.name + ".torn")
    print(
        f"{n} writers, {kills} of {4 * n} killed: {count:,} valid rows, none of "
        f"{len(reported):,} reported ones lost, one header, readable after every wave, "
        f"{torn.read_text().count('#') if torn.exists() else 0} torn lines set aside"
    )


def long(folder: Path, n: int) -> None:
    """Even rows hang in chains of n / 100, odd ones in a single chain of n / 2."""
    path, rng = folder / "long.tsv", random.Random(0)

    def parent(i: int) -> str:
        back = 2 if i % 2 else 100
        return f"kl={i - back}-s0-0123456789" if i >= back else ""

    statuses = [RowStatus.KEEP, RowStatus.DISCARD, RowStatus.CRASH]
    rows = [
        LineageRow(
            exp_id=f"kl={i}-s0-0123456789",
            timestamp="2026-01-31T12:00:00Z",
            specialist="rltune",
            parent_exp=parent(i),
            hypothesis="h" * 120,
            status=rng.choice(statuses),
            core_metric=rng.random(),
            notes="n" * 150,
            config_hash="f" * 64,
            **METRIC,
        )
        for i in range(n)
    ]
    path.write_text("".join(f"{line}\n" for line in (HEADER, *map(encode_row, rows))))
    store = LineageStore(path, *METRIC.values())
    size = path.stat().st_size / 1e6
    print(f"{n:,} rows, {size:.0f} MB")
    for name, ask in (
        ("best", store.best),
        (f"chain of {n // 100:,}", lambda: store.chain(rows[-2].exp_id)),
        (f"chain of {n // 2:,}", lambda: store.chain(rows[-1].exp_id)),
        ("read all", store.read),
        ("append one", lambda: store.append(LineageRow(
            exp_id=f"new-{time.monotonic_ns()}", status=RowStatus.CRASH, **METRIC
        ))),
    ):  # fmt: skip
        times = []
        for _ in range(5):
            began = time.perf_counter()
            ask()
            times.append(time.perf_counter() - began)
        low, middle, high = min(times), sorted(times)[2], max(times)
        print(f"  {name}: {middle:.2f} s (median of 5, {low:.2f} to {high:.2f})")


def single(folder: Path, n: int) -> None:
    store = LineageStore(folder / "single.tsv", *METRIC.values())
    began = time.perf_counter()
    for i in range(n):
        store.append(LineageRow(exp_id=f"r{i}", status=RowStatus.CRASH, **METRIC))
    each = (time.perf_counter() - began) / n
    print(f"one writer, table of up to {n} rows: {1000 * each:.2f} ms per append, fsync included")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--long", type=int, default=100_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        long(Path(folder), args.long)
        single(Path(folder), 500)
        writers(Path(folder), args.writers, args.rows)
        killed(Path(folder), args.writers, args.rows)


if __name__ == "__main__":
    main()
