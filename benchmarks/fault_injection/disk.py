"""Faults of the disk: full, read-only."""

import json
import subprocess
from pathlib import Path

from finding import Finding, Skipped
from sandbox import Sandbox


def disk_full(sandbox: Sandbox) -> Finding:
    """The disk of the run folder fills up during a trial."""
    with _OwnDisk(sandbox, size="6m") as disk:
        ended = sandbox.run_sweep()
        status = sandbox.run_command("status", str(sandbox.run.path))
        _mount("remount,size=200m", disk)
        again = sandbox.run_sweep()
        finding = Finding(
            "the trials that could not write are recorded with that reason; exit 1",
            "what followed the last checkpoint",
            {
                "exit code 1": ended.code == 1,
                "says that no space is left": ended.says("No space left") or ended.says("fitted"),
                "no traceback": "Traceback" not in ended.text,
                "status can be read": status.code == 1 and status.says("failed"),
                "the same command ends it": again.code == 0,
                **_finished(sandbox),
            },
            is_whole=False,
            is_equal=False,
        )
    return finding


def _finished(sandbox: Sandbox) -> dict[str, bool]:
    """Return the checks that need the disk that is about to go."""
    reference = sandbox.folder.parent / "reference.json"
    is_equal = reference.exists() and json.loads(reference.read_text()) == sandbox.digests()
    return {
        "records in order": not sandbox.record_problems(most_ends=1),
        "numbers of an undisturbed sweep": is_equal,
    }


def read_only(sandbox: Sandbox) -> Finding:
    """The run folder cannot be written."""
    with _OwnDisk(sandbox, size="64m") as disk:
        _mount("remount,ro", disk)
        ended = sandbox.run_sweep()
        _mount("remount,rw", disk)
    return Finding(
        "nothing starts; the error names the folder",
        checks={
            "refused": ended.code in (1, 2),
            "names the folder": ended.says("Read-only file system", str(sandbox.runs)),
            "no traceback": "Traceback" not in ended.text,
        },
        is_whole=False,
        is_equal=False,
    )


class _OwnDisk:
    """A small disk in memory below the sandbox's `runs`."""

    def __init__(self, sandbox: Sandbox, *, size: str) -> None:
        self._path, self._size = sandbox.runs, size

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
        raise Skipped(f"a separate disk needs root: {done.stderr.strip()}")
