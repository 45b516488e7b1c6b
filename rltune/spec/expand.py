"""From conditions and seeds to the explicit list of trials."""

import math
from dataclasses import replace

from rltune.errors import Problem, SpecError
from rltune.spec.conditions import Condition
from rltune.spec.identity import SLUG_LENGTH, config_hash, safe_slug, trial_id
from rltune.spec.load import LoadedSweep
from rltune.spec.schema.seeds import DEFAULT_MOST, FEWEST, MOST_SEEDS, UntilDecided
from rltune.types import SeedPlan, TrialSpec


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
    digest = config_hash(config)
    return TrialSpec(
        trial_id=trial_id(trial_slug(condition.label, seed), digest),
        sweep=loaded.spec.name,
        axis_key=loaded.spec.axis.key,
        condition=condition.label,
        axis_value=condition.value,
        is_control=condition.is_control,
        seed=seed,
        config=config,
        config_hash=digest,
        expected_delta=condition.expected_delta,
    )


def until_decided(
    loaded: LoadedSweep, *, most: int | None = None, effect: float | None = None
) -> LoadedSweep:
    """Return the sweep with seeds until decided, whatever its file says.

    A list of seeds becomes the first block, three seeds at least; whole numbers after its largest
    follow.

    Args:
        loaded: The sweep.
        most: Most seeds; None: the file's, or 12, or those listed where they are more.
        effect: Smallest difference of interest; None: the file's, or none.

    Raises:
        SpecError: A number cannot be used.

    """
    in_file = loaded.spec.seeds
    stated = in_file.plan if isinstance(in_file, UntilDecided) else None
    before = loaded.until or stated  # of the file, though other seeds were asked for
    listed = loaded.seeds if loaded.until is None else loaded.seeds[: loaded.until.start]
    start = max(FEWEST, len(listed))
    wanted = max(before.most if before else DEFAULT_MOST, start) if most is None else most
    problems = []
    if not start <= wanted <= MOST_SEEDS:
        choices = f"Give {start} to {MOST_SEEDS}: the first block has {start}."
        problems.append(Problem("--max-seeds", f"{wanted} cannot be the most seeds.", choices))
    if effect is not None and not 0.0 < effect < math.inf:
        what = f"{effect:g} is not a difference of interest."
        problems.append(Problem("--effect", what, "Give one above 0, in the metric's unit."))
    if problems:
        raise SpecError(problems)
    following = range(max(listed) + 1, max(listed) + 1 + wanted - len(listed))
    block, known = (before.block, before.effect) if before else (1, 0.0)
    plan = SeedPlan(start, wanted, block, known if effect is None else effect)
    return replace(loaded, seeds=(*listed, *following), until=plan)
