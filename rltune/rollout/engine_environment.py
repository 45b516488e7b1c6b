"""What the process of an engine needs from its parent. Imports no torch."""

import os
import tempfile
from pathlib import Path

from rltune.interpreter import module_environment


def engine_environment(folder: Path, *, gpu: str, threads: int) -> dict[str, str]:
    """Return the environment of an engine's process.

    Args:
        folder: Of its temporary files.
        gpu: What it is to see as `CUDA_VISIBLE_DEVICES`; empty for none.
        threads: Of torch there.

    """
    return module_environment(
        CUDA_VISIBLE_DEVICES=gpu,
        OMP_NUM_THREADS=str(threads),
        TMPDIR=str(folder),
        TORCHINDUCTOR_CACHE_DIR=_kernel_folder(),
    )


def _kernel_folder() -> str:
    """Return where torch keeps compiled kernels: some seconds of each start, if not shared."""
    default = Path(tempfile.gettempdir(), f"torchinductor_{os.getuid()}")
    return os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(default)
