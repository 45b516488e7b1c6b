import platform
import subprocess
import sys
from pathlib import Path

import pytest

from rltune.trainer.memory import trim_heap


def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmRSS:")).split()[1])


PASSES = """
import resource, sys
from rltune.trainer.memory import keep_heap
if sys.argv[1] == "keep":
    keep_heap()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    activations = [bytearray(b"x") * 2**24 for _ in range(8)]
    del activations
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults_of_passes(heap):
    command = [sys.executable, "-c", PASSES, heap]
    return int(subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_a_kept_heap_is_mapped_once():
    # 50 passes over 8 x 16 MiB: mapped in the first pass, or in each one
    assert faults_of_passes("keep") < faults_of_passes("as it is") / 20


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_goes_back_to_the_system():
    # 160 MB in blocks of the heap; the last of them, still in use, keeps it as large as it is
    blocks = [b"x" * (2**14 + index % 2) for index in range(10_000)]
    last = blocks.pop()
    full = resident()
    del blocks
    trim_heap()
    assert resident() < full - 100 * 10**6
    assert len(last) >= 2**14
