"""On how many common GPUs a trial fits that takes a rare one alone: a rank on each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from rltune.forecast.gpus import MIB, Gpu, gpus_that_hold
from rltune.forecast.model_shapes import Shape
from rltune.forecast.ranks import rank_plan
from rltune.spec.identity import flatten
from rltune.spec.keys import nested, typed
from rltune.spec.schema.run import reserved_gpus
from rltune.spec.schema.trial import TrialConfig, to_plain

COMMON_MEMORY = 81_920 * MIB
"""Of the largest such GPU, in bytes."""

_RANKS = (2, 4, 8)  # of one machine


@dataclass(frozen=True, slots=True)
class Spread:
    """A trial on several GPUs."""

    count: int  # GPUs, those of its engines included
    settings: Mapping[str, object]  # that make it so
    memory: int  # bytes of the one that holds most
    gpus: tuple[Gpu, ...]  # that hold it, the smallest first


def is_common(gpu: Gpu) -> bool:
    """Return whether it is one that most clouds and labs have."""
    return gpu.memory <= COMMON_MEMORY


def spread_of(config: TrialConfig, shape: Shape, *, parameters: int, trained: int) -> Spread | None:
    """Return a trial on the fewest ranks whose GPUs are common ones; None where none would do.

    Args:
        config: Of a trial on one GPU, or on fewer ranks.
        shape: Of the model.
        parameters: Of the policy without adapters.
        trained: Those that training changes.

    """
    for settings, changed in _on_more_ranks(config):
        plan = rank_plan(changed, shape, parameters=parameters, trained=trained)
        gpus = gpus_that_hold(plan.fullest)
        if any(is_common(gpu) for gpu in gpus):
            return Spread(int(reserved_gpus(to_plain(changed))), settings, plan.fullest, gpus)
    return None


def _on_more_ranks(config: TrialConfig) -> Iterator[tuple[Mapping[str, object], TrialConfig]]:
    """Yield a config on more and more ranks, where it can have them, and what changes it."""
    flat: dict[str, Any] = flatten(to_plain(config))
    for ranks in _RANKS:
        settings: dict[str, object] = {"resources.gpus": ranks}
        if config.rollout.engine == "vllm" and config.resources.engine == "shared":
            settings["resources.engine"] = "own"
        if ranks <= config.resources.gpus:
            continue
        try:
            yield settings, typed(nested({**flat, **settings}))
        except ValidationError:  # ranks cannot compute it, or are more than its rows
            continue
