"""How a process becomes a rank."""

import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch

from rltune.spec.schema.trial import TrialConfig

_TIMEOUT = timedelta(minutes=10)
"""Longest that a rank waits for the others in one exchange; it is as long as their largest
micro-batch may differ. A rank that ends is noticed at once."""


@dataclass(frozen=True, slots=True)
class RankSetup:
    """Everything that a process needs to be a rank. Picklable; absolute paths."""

    rank: int  # from 0
    size: int  # number of ranks
    config: TrialConfig  # resolved config
    trial: Path  # the trial's folder
    base: Path  # folder to which relative paths in the config refer
    folder: Path  # where the ranks of this trial find each other

    @property
    def device(self) -> torch.device:
        """Device of this rank; on GPUs each has its own."""
        is_gpu = self.config.resources.gpus > 0
        return torch.device("cuda", self.rank) if is_gpu else torch.device("cpu")


def join(setup: RankSetup) -> torch.device:
    """Meet the other ranks, all of this machine; return this rank's device."""
    device = setup.device
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if sys.platform == "linux":  # no other machine is to be reached, nor to reach us
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
        init_method=f"file://{setup.folder}/meeting",
        rank=setup.rank,
        world_size=setup.size,
        timeout=_TIMEOUT,
    )
    return device
