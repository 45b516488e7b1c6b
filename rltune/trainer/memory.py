"""The most memory that a trial has held; `rltune audit` compares it with the plan."""

import ctypes
import resource
from pathlib import Path

import torch

GIB = 2**30
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt, as in malloc.h


def memory_used() -> dict[str, float]:
    """Return the most that this process has held so far, in GiB, under verl's metric names (`gb`).

    Of a GPU it is what torch had allocated, which is what a plan counts.
    """
    used = {"perf/max_rss_gb": peak_rss() / GIB}
    if torch.cuda.is_available() and (peak := torch.cuda.max_memory_allocated()):
        used["perf/max_memory_allocated_gb"] = peak / GIB
    return used


def peak_rss() -> int:
    """Return the most bytes of memory that this program has held.

    The kernel's count comes first: getrusage includes what the process held before it started this
    program.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        lines = []
    kib = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), None)
    return 1024 * (int(kib) if kib else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def keep_heap() -> None:
    """Let the C library of this process keep freed memory until `trim_heap` asks for it.

    A pass frees its activations and the next one wants as many. Given back in between, every page
    is mapped and zeroed again: 10 to 15 % of the update of a small model. Nothing happens where
    that library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, GIB)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def trim_heap() -> None:
    """Give back to the system what the C library keeps of memory that was freed.

    Over many steps it is cut into pieces that fit nothing. Nothing happens where that library is
    not glibc.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
