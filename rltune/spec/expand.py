"""From conditions and seeds to the explicit list of trials."""

from rltune.spec.conditions import Condition
from rltune.spec.identity import SLUG_LENGTH, config_hash, safe_slug, trial_id
from rltune.spec.load import LoadedSweep
from rltune.types import TrialSpec


def trial_slug(label: str, seed: int) -> str:
    """Return `kl_loss_coef=0.01-s0`; a long label is cut, never the seed."""
    tail = f"-s{seed}"
    return safe_slug(label)[: SLUG_LENGTH - len(tail)] + tail


def expand(loaded: LoadedSweep) -> tuple[TrialSpec, ...]:
    """Return every trial of a sweep: seed after seed, the control first within a seed.

    Seed-major order gives one complete comparison as early as possible.
    """
    ordered = sorted(loaded.conditions, key=lambda condition: not condition.is_control)
    return tuple(_trial(loaded, condition, seed) for seed in loaded.seeds for condition in ordered)


def _trial(loaded: LoadedSweep, condition: Condition, seed: int) -> TrialSpec:
    config = {**condition.config, "seed": seed}
    return TrialSpec(
        trial_id=trial_id(config, trial_slug(condition.label, seed)),
        sweep=loaded.spec.name,
        axis_key=loaded.spec.axis.key,
        condition=condition.label,
        axis_value=condition.value,
        is_control=condition.is_control,
        seed=seed,
        config=config,
        config_hash=config_hash(config),
        expected_delta=condition.expected_delta,
    )
