"""Ends what a killed driver leaves: some of Ray's processes look for their parent every 30 s only.

A small process of its own holds the other end of a pipe. When the driver goes without a word, it
waits for the cluster's processes to see it themselves, kills those that do not, and removes the
cluster's folder. Run as a script, so it imports nothing of rltune.
"""

import os
import shutil
import subprocess
import sys
import threading
import time

import psutil

MARK = "RLTUNE_CLUSTER"
"""Environment variable that every process of a private cluster carries: its folder."""
GRACE_S = 4.0


class OrphanCleanup:
    """The driver's end of the pipe. What it starts between `__init__` and `dismiss` is marked.

    Args:
        folder: The private cluster's folder; names the cluster.

    """

    def __init__(self, folder: str) -> None:
        self._lock = threading.Lock()
        os.environ.pop(MARK, None)  # the cleanup must not kill itself
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a signal to the driver's group is not for it
        )
        os.environ[MARK] = folder

    def dismiss(self) -> None:
        """Say that the cluster was ended in order; may be called again."""
        os.environ.pop(MARK, None)
        with self._lock:  # at an abort, Tune's thread and the driver's end at the same time
            pipe = self._process.stdin
            if pipe is None or pipe.closed:
                return
            try:
                pipe.write(b"over\n")
                pipe.close()
            except BrokenPipeError:  # somebody killed it; there is nothing left to do
                pass
        self._process.wait()


def main() -> None:
    """Wait for the driver to say that it is done; clean up if it dies without saying so."""
    folder = sys.argv[1]
    if sys.stdin.buffer.read():
        return
    deadline = time.monotonic() + GRACE_S
    while (left := members(folder)) and time.monotonic() < deadline:
        time.sleep(0.2)
    for process in left:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(left, timeout=GRACE_S)
    shutil.rmtree(folder, ignore_errors=True)


def members(folder: str) -> list[psutil.Process]:
    """Return the living processes of a cluster."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == folder and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
        except psutil.Error:  # it ended just now, or is somebody else's
            continue
    return processes


if __name__ == "__main__":
    main()
