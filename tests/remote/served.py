"""The training service that the contract is checked against.

The project's own; or, where RLTUNE_SERVICE_MODEL is set, the one that TINKER_BASE_URL names. That
variable is the folder of a small base model, which the service must offer by this very name.
"""

import io
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path

import httpx
from peft.tuners.lora import LoraLayer

from rltune.remote.session import Session

RANK, SEED = 4, 0
MODEL = os.environ.get("RLTUNE_SERVICE_MODEL", "")


@dataclass(frozen=True)
class Served:
    """A base model, and the adapter that each new client begins with."""

    model: str = "tiny"
    adapter: str = "default"  # or the folder of what was downloaded from the service

    def policy(self, backend):
        """Return `policy` of a config: torch begins with the service's adapter."""
        init = self.adapter if backend == "torch" else "default"
        return {"model": self.model, "lora": {"rank": RANK, "alpha": 32.0, "init": init}}


def download_start(folder: Path) -> Served:
    """Return the other service, whose first adapter of a seed is written to a folder."""
    session = Session(MODEL, timeout_s=300.0)
    adapter = session.new_adapter(rank=RANK, seed=SEED)
    saved = session.wait(adapter.save_weights_for_sampler("start"), "save its weights").path
    run, *_, name = saved.removeprefix("tinker://").split("/")
    url = f"{os.environ['TINKER_BASE_URL']}/api/v1/training_runs/{run}/checkpoints/{name}/archive"
    answer = httpx.get(url, timeout=60.0, follow_redirects=True).raise_for_status()
    session.close()
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        archive.extractall(folder, filter="data")
    (config,) = folder.rglob("adapter_config.json")
    return Served(MODEL, str(config.parent))


def tie_equal_matrices(network) -> None:
    """Make one parameter of A matrices that are equal: some services have one for q, k and v."""
    for block in network.modules():
        seen = []
        for layer in block.children():
            if not isinstance(layer, LoraLayer):
                continue
            (own,) = layer.lora_A.values()
            same = [one for one in seen if one.weight.equal(own.weight)]
            if same:
                own.weight = same[0].weight
            seen.append(own)
