"""What the process of an engine needs from its parent. Imports no torch."""

import getpass
import os
import tempfile
from contextlib import suppress
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


def link_kernels(folder: Path) -> None:
    """Have what torch keeps in an engine's temporary folder kept with its compiled kernels.

    It precompiles C++ headers there, whatever TORCHINDUCTOR_CACHE_DIR says. Where that folder
    cannot be made, each engine compiles its own.
    """
    kernels = Path(_kernel_folder())
    with suppress(OSError):
        kernels.mkdir(parents=True, exist_ok=True)
        (folder / _torchs_name()).symlink_to(kernels.absolute())


def _kernel_folder() -> str:
    """Return where torch keeps compiled kernels: some seconds of each start, if not shared."""
    default = Path(tempfile.gettempdir(), _torchs_name())
    return os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(default)


def _torchs_name() -> str:
    """Return what torch calls a folder of its own in the temporary folder."""
    try:
        return f"torchinductor_{getpass.getuser()}"
    except (KeyError, OSError):  # a user without a name
        return f"torchinductor_uid_{os.getuid()}"
