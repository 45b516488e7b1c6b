"""A cluster of two real Ray nodes on this machine, each a process group of its own."""

import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import psutil
from patience import wait_until

from rltune.runner.environment import RAY_ENVIRONMENT

MARK = "RLTUNE_TEST_NODE"


class Node:
    """One `ray start --block`. Every process that it starts carries its mark.

    Args:
        name: Name of the node; the mark with the cluster's folder.
        environment: Of its processes.
        arguments: For `ray start`.

    """

    def __init__(self, name: str, environment: dict[str, str], *arguments: str) -> None:
        self.name = name
        self._mark = f"{environment['RAY_TMPDIR']} {name}"
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
                *(f"--node-name={name}", "--num-cpus=1", "--disable-usage-stats"),
                *("--object-store-memory=80000000", "--include-log-monitor=false"),
                *arguments,
            ],
            env=environment | {MARK: self._mark},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def processes(self) -> list[psutil.Process]:
        """Return the living processes of this node."""
        found = []
        for process in psutil.process_iter():
            try:
                own = process.environ().get(MARK) == self._mark
                if own and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:  # it ended just now, or is somebody else's
                continue
        return found

    def power_off(self) -> None:
        """Kill everything at once, as when the plug is pulled."""
        while left := self.processes():
            for process in left:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
            psutil.wait_procs(left, timeout=5)
        self._process.wait()


def start_head(name: str, environment: dict[str, str], address: str, folder: Path) -> Node:
    """Start the head of a cluster at an address of this machine."""
    where = ("--node-ip-address=127.0.0.1", f"--port={address.rpartition(':')[2]}")
    rest = (f"--temp-dir={folder}", "--include-dashboard=false")
    return Node(name, environment, "--head", *where, *rest)


class TwoNodes:
    """A head and a worker, one core each, that only holders of their token can reach.

    Args:
        folder: For the files of Ray; short, as a socket's path may have 107 bytes.

    """

    def __init__(self, folder: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.environment = {
            **os.environ,
            **RAY_ENVIRONMENT,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_TMPDIR": str(folder),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "OMP_NUM_THREADS": "1",
        }
        self.head = start_head("head", self.environment, self.address, folder)
        self.worker = self.head
        try:
            self._wait_for(1)
            self.join("worker")
        except BaseException:
            self.power_off()
            raise

    def join(self, name: str) -> Node:
        """Start one more node, on a loopback address of its own."""
        address = (f"--address={self.address}", "--node-ip-address=127.0.0.2")
        self.worker = Node(name, self.environment, *address)
        self._wait_for(2)
        return self.worker

    def power_off(self) -> None:
        """End both nodes."""
        self.worker.power_off()
        self.head.power_off()

    def _wait_for(self, count: int) -> None:
        wait_until(lambda: self._living() >= count, every_s=0.3)

    def _living(self) -> int:
        code = (
            "from ray._raylet import GcsClient\n"
            f"nodes = GcsClient(address={self.address!r}).get_all_node_info(timeout=5)\n"
            "print(sum(node.state == 0 for node in nodes.values()))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return int(done.stdout) if done.returncode == 0 else 0


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
