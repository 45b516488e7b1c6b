"""The faults, one function each: mistreat a sweep, say what came of it.

Each returns what must be true as named checks; `run.py` adds the ones that always hold: the same
command ends the sweep, nothing finished is lost or runs twice, every number is that of an
undisturbed sweep, no process is left.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab import ROOT, STEPS, Ended, Lab, steps_of

from rltune.runner.trial import read_provenance


@dataclass(frozen=True)
class Finding:
    """What came of a fault.

    Attributes:
        outcome: What a person sees, in a few words.
        lost: Work that was lost, in a few words.
        checks: What must be true -> whether it is.
        most_ends: How often a trial may have ended.
        is_whole: Whether the same command must now have ended the sweep.
        is_equal: Whether every number must be that of an undisturbed sweep.

    """

    outcome: str
    lost: str = "none"
    checks: Mapping[str, bool] = field(default_factory=dict)
    most_ends: int = 1
    is_whole: bool = True
    is_equal: bool = True


class Skipped(Exception):
    """This machine cannot make the fault."""


def interrupt(lab: Lab) -> Ended:
    """Stop the sweep cleanly while its second trial trains."""
    process = lab.launch()
    lab.wait(process, lab.second_trains)
    os.killpg(process.pid, signal.SIGINT)
    return lab.end(process)


def _steps_again(before: int, lab: Lab) -> str:
    log = lab.trials[1].log.read_text()
    resumed = int(log.rpartition("resumed from step ")[2].split()[0]) if "resumed" in log else 0
    again = before - resumed
    return f"{again} of {STEPS} steps made again" if again else "none"


def _signal(number: int) -> Callable[[Lab], Finding]:
    def fault(lab: Lab) -> Finding:
        process = lab.launch()
        lab.wait(process, lab.second_trains)
        process.send_signal(number)
        ended = lab.end(process)
        before, left = steps_of(lab.trials[1]), lab.orphans()
        status = lab.do("status", str(lab.run.path))
        again = lab.sweep_on()
        return Finding(
            "stops after the running step, with a checkpoint; exit 3",
            _steps_again(before, lab),
            {
                "exit code 3": ended.code == 3,
                "says that the same command goes on": ended.says("the same command goes on"),
                "status says interrupted": status.says("interrupted"),
                "no orphans": left == 0,
                "the same command ends it": again.code == 0,
            },
        )

    return fault


def kill_driver(lab: Lab) -> Finding:
    """SIGKILL of the driver."""
    process = lab.launch()
    lab.wait(process, lab.second_trains)
    process.send_signal(signal.SIGKILL)
    lab.end(process)
    left, before = lab.orphans(), steps_of(lab.trials[1])
    status = lab.do("status", str(lab.run.path))
    again = lab.sweep_on()
    return Finding(
        "its workers end with it; the next launch books the attempt as preempted",
        _steps_again(before, lab),
        {
            "no orphans": left == 0,
            "status says interrupted": status.says("interrupted"),
            "the same command ends it": again.code == 0,
        },
    )


def kill_worker(lab: Lab) -> Finding:
    """SIGKILL of a trial's process."""
    process = lab.launch()
    lab.wait(process, lab.second_trains)
    os.kill(lab.worker(lab.trials[1]), signal.SIGKILL)
    ended = lab.end(process)
    before = steps_of(lab.trials[1])
    again = lab.sweep_on()
    return Finding(
        "that trial is booked as a crash with its signal, the others go on; exit 1",
        _steps_again(before, lab),
        {
            "exit code 1": ended.code == 1,
            "says how it died": ended.says("its process died"),
            "the same command ends it": again.code == 0,
        },
    )


def kill_ray(lab: Lab) -> Finding:
    """SIGKILL of Ray's own daemon."""
    process = lab.launch()
    lab.wait(process, lab.second_trains)
    found = subprocess.run(["pgrep", "-x", "raylet"], capture_output=True, text=True, check=False)
    ours = [int(pid) for pid in found.stdout.split() if _is_of(lab, int(pid))]
    if not ours:
        raise Skipped("no raylet of the lab's was found")
    for pid in ours:
        os.kill(pid, signal.SIGKILL)
    ended = lab.end(process)
    left, before = lab.orphans(), steps_of(lab.trials[1])
    again = lab.sweep_on()
    return Finding(
        "the driver ends with an error that names Ray; the same command goes on",
        _steps_again(before, lab),
        {
            "exit code 1": ended.code == 1,
            "no traceback": "Traceback" not in ended.text,
            "no orphans": left == 0,
            "the same command ends it": again.code == 0,
        },
    )


def _is_of(lab: Lab, pid: int) -> bool:
    try:
        return lab.name.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def out_of_memory(lab: Lab) -> Finding:
    """Ray's memory monitor kills the trial, as it does when the machine has no memory left."""
    lab.environment |= {
        "RAY_memory_usage_threshold": "0.001",
        "RAY_memory_monitor_refresh_ms": "200",
    }
    ended = lab.sweep_on()
    lab.environment.clear()
    again = lab.sweep_on()
    return Finding(
        "the trials are booked as crashes whose reason says memory; exit 1",
        "what followed the last checkpoint",
        {
            "exit code 1": ended.code == 1,
            "says memory": ended.says("memory"),
            "the same command ends it": again.code == 0,
        },
    )


def disk_full(lab: Lab) -> Finding:
    """The disk of the run folder fills up during a trial."""
    with _OwnDisk(lab, size="6m") as disk:
        ended = lab.sweep_on()
        status = lab.do("status", str(lab.run.path))
        _mount("remount,size=200m", disk)
        again = lab.sweep_on()
        finding = Finding(
            "the trials that could not write are booked with that reason; exit 1",
            "what followed the last checkpoint",
            {
                "exit code 1": ended.code == 1,
                "says that no space is left": ended.says("No space left") or ended.says("fitted"),
                "no traceback": "Traceback" not in ended.text,
                "status can be read": status.code == 1 and status.says("failed"),
                "the same command ends it": again.code == 0,
                **_finished(lab),
            },
            is_whole=False,
            is_equal=False,
        )
    return finding


def _finished(lab: Lab) -> dict[str, bool]:
    """Return the checks that need the disk that is about to go."""
    reference = lab.folder.parent / "reference.json"
    import json

    equal = json.loads(reference.read_text()) == lab.digests() if reference.exists() else False
    return {"books in order": not lab.books(most_ends=1), "numbers of an undisturbed sweep": equal}


def read_only(lab: Lab) -> Finding:
    """The run folder cannot be written."""
    with _OwnDisk(lab, size="64m") as disk:
        _mount("remount,ro", disk)
        ended = lab.sweep_on()
        _mount("remount,rw", disk)
    return Finding(
        "nothing starts; the error names the folder",
        checks={
            "refused": ended.code in (1, 2),
            "names the folder": ended.says("Read-only file system", str(lab.runs)),
            "no traceback": "Traceback" not in ended.text,
        },
        is_whole=False,
        is_equal=False,
    )


class _OwnDisk:
    """A small disk in memory below the lab's `runs`."""

    def __init__(self, lab: Lab, *, size: str) -> None:
        self._path, self._size = lab.runs, size

    def __enter__(self) -> Path:
        self._path.mkdir(exist_ok=True)
        _mount(f"size={self._size}", self._path)
        return self._path

    def __exit__(self, *error: object) -> None:
        subprocess.run(["umount", "-l", str(self._path)], check=True)


def _mount(options: str, path: Path) -> None:
    command = ["mount", "-t", "tmpfs", "-o", options, "rltune-faults", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skipped(f"a disk of its own needs root: {done.stderr.strip()}")


def _torn(damage: Callable[[Path], None]) -> Callable[[Lab], Finding]:
    def fault(lab: Lab) -> Finding:
        interrupt(lab)
        before = steps_of(lab.trials[1])
        damage(max(lab.trials[1].checkpoints.glob("step-*")) / "policy.safetensors")
        again = lab.sweep_on()
        log = lab.trials[1].log.read_text()
        return Finding(
            "set aside as torn-step-...; the trial goes on from the checkpoint before",
            _steps_again(before, lab),
            {
                "the log says it": "It is now torn-step-" in log,
                "the same command ends it": again.code == 0,
            },
        )

    return fault


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1000] ^= 0x40
    path.write_bytes(data)


def corrupt_marker(lab: Lab) -> Finding:
    """The DONE marker of a finished trial is half a file."""
    lab.sweep_on()
    half(lab.trials[0].done)
    status = lab.do("status", str(lab.run.path))
    again = lab.sweep_on()
    return Finding(
        "status names the file; the trial ends again from its last checkpoint",
        checks={
            "status can be read": status.code in (0, 1) and "Traceback" not in status.text,
            "status names the marker": status.says("its DONE cannot be read"),
            "the same command ends it": again.code == 0,
        },
        most_ends=2,
    )


def corrupt_config(lab: Lab) -> Finding:
    """config.yaml and trial.json of an unfinished trial are half files."""
    interrupt(lab)
    before = steps_of(lab.trials[1])
    for path in (lab.trials[1].config, lab.trials[1].spec, lab.trials[1].provenance):
        half(path)
    again = lab.sweep_on()
    return Finding(
        "written again from the sweep file",
        _steps_again(before, lab),
        {"the same command ends it": again.code == 0},
    )


def torn_table(lab: Lab) -> Finding:
    """Lineage, ledger and metrics end in half a line; a foreign line stands in the table."""
    interrupt(lab)
    before = steps_of(lab.trials[1])
    with lab.run.results.open("a") as file:
        file.write("a foreign line\nhalf a li")
    with lab.run.ledger.open("a") as file:
        file.write('not json\n{"event": "sta')
    with lab.trials[1].metrics.open("a") as file:
        file.write('{"step": 9')
    again = lab.sweep_on()
    table = lab.do("lineage", "show", str(lab.run.path))
    return Finding(
        "unreadable lines are skipped, named with their number, and kept in *.torn",
        _steps_again(before, lab),
        {
            "the same command ends it": again.code == 0,
            "the table names the line": table.code == 0 and table.says("line"),
        },
    )


def corrupt_ray_state(lab: Lab) -> Finding:
    """Ray Tune's experiment state is garbage."""
    interrupt(lab)
    before = steps_of(lab.trials[1])
    for path in [path for path in lab.run.tune.rglob("*") if path.is_file()]:
        if path.name != "STOP":
            path.write_bytes(b"\x00garbage")
    again = lab.sweep_on()
    return Finding(
        "never read: each launch starts a fresh one",
        _steps_again(before, lab),
        {"the same command ends it": again.code == 0},
    )


def not_a_number(lab: Lab) -> Finding:
    """The loss or the weights are not finite."""
    ended = lab.sweep_on()
    again = lab.sweep_on()
    status = lab.do("status", str(lab.run.path))
    kept = [any(trial.checkpoints.glob("step-*")) for trial in lab.trials]
    return Finding(
        "booked as diverged, the last good checkpoint kept; not run again",
        "what followed the last checkpoint",
        {
            "exit code 1": ended.code == 1,
            "status says diverged": status.says("diverged"),
            "a checkpoint is kept": all(kept),
            "not run again": again.says("Nothing was left to run"),
        },
        is_whole=False,
        is_equal=False,
    )


def two_drivers(lab: Lab) -> Finding:
    """A second driver on the same folder."""
    process = lab.launch()
    lab.wait(process, lab.second_trains)
    second = lab.sweep_on()
    first = lab.end(process)
    return Finding(
        "the second is refused and told the first one's process; exit 2",
        checks={
            "the second is refused": second.code == 2,
            "names the process": second.says(f"process {process.pid}"),
            "the first ends well": first.code == 0,
        },
    )


def clock_jump(lab: Lab) -> Finding:
    """The wall clock is set back a day, then forward two, while trials run."""
    shim = lab.folder / "clock"
    shim.mkdir()
    (shim / "sitecustomize.py").write_text(_CLOCK.format(offset=str(shim / "offset")))
    lab.environment["PYTHONPATH"] = str(shim)
    process = lab.launch()
    lab.wait(process, lab.second_trains)
    (shim / "offset").write_text("-86400")
    lab.wait(process, lambda: steps_of(lab.trials[1]) > 20)
    (shim / "offset").write_text("86400")
    ended = lab.end(process)
    result = lab.trials[1].read_done()
    return Finding(
        "nothing depends on it: durations come from the monotonic clock",
        checks={
            "ends well": ended.code == 0,
            "durations are sane": result is not None and 0 < result.total_s < 3600,
        },
    )


_CLOCK = """
import time
_now = time.time
def _time():
    try:
        return _now() + float(open({offset!r}).read())
    except (OSError, ValueError):
        return _now()
time.time = _time
"""


def changed_code(lab: Lab) -> Finding:
    """The code is edited between two launches of one sweep."""
    code = lab.folder / "code"
    for package in ("rltune", "envs/rltune_envs"):
        source = ROOT / package
        shutil.copytree(source, code / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "configs", code / "configs")
    lab.environment["PYTHONPATH"] = str(code)
    interrupt(lab)
    before = steps_of(lab.trials[1])
    with (code / "rltune" / "gate.py").open("a") as file:
        file.write("\n# edited\n")
    again = lab.sweep_on()
    seen = {read_provenance(trial)["source_sha256"] for trial in lab.trials}
    return Finding(
        "recorded for each attempt; the audit fails (A1) and names the trials",
        _steps_again(before, lab),
        {"recorded": len(seen) == 2, "the audit fails": again.code == 1 and again.says("A1")},
    )


def hanging_judge(lab: Lab) -> Finding:
    """A language-model judge that takes calls and never answers."""
    with _Silence() as port:
        lab.environment["FAULTS_API_KEY"] = "sk-not-a-key"
        lab.write_sweep(
            {
                "advantage": {"kind": "grpo"},
                "attribution.kind": "adca",
                "attribution.judge": "llm",
                "attribution.llm.base_url": f"http://127.0.0.1:{port}/v1",
                "attribution.llm.api_key_env": "FAULTS_API_KEY",
                "attribution.llm.timeout_s": 1.0,
                "attribution.llm.max_retries": 0,
            }
        )
        ended = lab.sweep_on()
    return Finding(
        "each call ends at its timeout; a trial with nothing judged in 3 steps fails by name",
        "what followed the last checkpoint",
        {
            "exit code 1": ended.code == 1,
            "says that nothing was judged": ended.says("judge"),
            "no traceback": "Traceback" not in ended.text,
        },
        is_whole=False,
        is_equal=False,
    )


def hanging_retriever(lab: Lab) -> Finding:
    """A retriever that stands still for a minute, its port open."""
    server = lab.start("serve-retriever", "--port", "0")
    assert server.stdout is not None
    line = next(line for line in server.stdout if "http://" in line)
    lab.write_sweep(
        {"env.retriever": next(word for word in line.split() if word.startswith("http://"))},
        base="multihop_qa",
    )
    try:
        process = lab.launch()
        lab.wait(process, lab.second_trains)
        server.send_signal(signal.SIGSTOP)
        time.sleep(60)  # longer than the four tries of ten seconds
        server.send_signal(signal.SIGCONT)
        ended = lab.end(process)
    finally:
        server.send_signal(signal.SIGCONT)
        server.terminate()
        server.wait()
    log = lab.trials[1].log.read_text()
    return Finding(
        "a search that got no answer in its four tries is a fault of its episode, which no "
        "update sees; the trial goes on",
        "the episodes with a fault",
        {"ends well": ended.code == 0, "the log counts them": "fault" in log},
        is_equal=False,
    )


class _Silence:
    """A port that takes connections and says nothing."""

    def __enter__(self) -> int:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        return int(self._socket.getsockname()[1])

    def __exit__(self, *error: object) -> None:
        self._socket.close()


CASES: dict[str, tuple[Callable[[Lab], Finding], Mapping[str, object]]] = {
    "SIGINT to the driver": (_signal(signal.SIGINT), {}),
    "SIGTERM to the driver": (_signal(signal.SIGTERM), {}),
    "SIGHUP to the driver": (_signal(signal.SIGHUP), {}),
    "SIGKILL of the driver": (kill_driver, {}),
    "SIGKILL of a trial's process": (kill_worker, {}),
    "SIGKILL of Ray's daemon": (kill_ray, {}),
    "out of memory": (out_of_memory, {}),
    "disk full": (disk_full, {}),
    "read-only folder": (read_only, {}),
    "half-written checkpoint": (_torn(half), {}),
    "one bit of a checkpoint flipped": (_torn(flip), {}),
    "half-written DONE marker": (corrupt_marker, {}),
    "half-written config": (corrupt_config, {}),
    "torn lineage, ledger and metrics": (torn_table, {}),
    "corrupt Ray state": (corrupt_ray_state, {}),
    "NaN loss": (not_a_number, {"optim.lr": 1e30}),
    "judge that hangs": (hanging_judge, {}),
    "retriever that hangs": (hanging_retriever, {}),
    "two drivers on one folder": (two_drivers, {}),
    "clock jumps": (clock_jump, {}),
    "code changed between launches": (changed_code, {}),
}
"""Name of the fault -> what does it, and config keys that it needs."""
