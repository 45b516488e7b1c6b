import platform
from pathlib import Path

import pytest

from rltune.trainer.memory import trim_heap


def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmRSS:")).split()[1])


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
