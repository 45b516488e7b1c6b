"""Threads and device of a trial's process.

Torch is imported late: its thread pools read the environment when they are first loaded.
"""

import logging
import os
import sys

from rltune.errors import Problem, ResourceError, StoreError
from rltune.spec.schema.trial import TrialConfig
from rltune.store.files import dumps
from rltune.store.origin import read_origin, require_current_config
from rltune.store.rundir import TrialDir

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def set_environment(config: TrialConfig) -> None:
    """Set what torch reads at its first import: threads, and no GPU unless one is reserved."""
    if "torch" in sys.modules:
        return
    for name in THREAD_VARIABLES:
        os.environ[name] = str(config.resources.threads)
    if config.resources.gpus == 0:  # Ray leaves the parent's devices visible
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def prepare_for(trial: TrialDir) -> TrialConfig:
    """Return the config of a trial, and set up this process as the trial's was.

    Raises:
        StoreError: It has not started, or an older version of rltune ran it.

    """
    if not trial.spec.exists():
        what = "the trial has not started, so no gate has finished."
        raise StoreError(Problem(str(trial.path), what, action="Run it first."))
    spec = trial.read_spec()
    require_current_config(trial, spec, read_origin(trial))
    config = TrialConfig.model_validate_json(dumps(spec.config))
    set_environment(config)
    return config


def set_threads(threads: int) -> None:
    """Give torch its threads: the last bit of a sum may depend on how it was divided."""
    import torch

    torch.set_num_threads(threads)
    if torch.get_num_interop_threads() != 1:
        try:
            torch.set_num_interop_threads(1)
        except RuntimeError:  # parallel work has begun in this process; results do not depend on it
            logging.getLogger(__name__).debug("inter-op threads stay as they are")


def device_of(config: TrialConfig) -> str:
    """Return the torch device that the reserved resources stand for.

    Raises:
        ResourceError: A GPU is reserved and torch sees none.

    """
    if config.resources.gpus == 0:
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        raise ResourceError(
            Problem(
                "resources.gpus",
                f"{config.resources.gpus:g} GPUs are requested, but torch sees none here.",
                action="Install a CUDA build of torch, or set resources.gpus to 0.",
            )
        )
    limit_share(config.resources.gpus)
    return "cuda"


def limit_share(gpus: float) -> None:
    """Cap what torch may allocate on a GPU that several trials share, to this trial's share.

    Ray only counts shares. With the cap a trial that wants more ends with torch's own error, and
    its neighbours go on. What CUDA itself holds for a process comes on top, so leave some room.
    """
    import torch

    if gpus < 1 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(gpus)
