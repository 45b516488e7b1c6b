"""S8.few_rows: training on a handful of rows teaches those rows."""

from collections.abc import Iterator
from pathlib import Path

from rltune.comparability.findings import Finding, listed, warning
from rltune.spec.identity import canonical_json
from rltune.spec.load import LoadedSweep
from rltune.spec.schema.env import CustomEnvConfig
from rltune.spec.schema.env_taskset import TASKSET_ENV
from rltune.spec.schema.env_verified import VerifiedConfig
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.tasks import env_maker
from rltune_envs.protocols import HasParts, supports

FEW_ROWS = 100
"""Fewer training rows than this are named, and must be accepted with a reason."""


def few_rows(loaded: LoadedSweep, base: Path) -> Iterator[Finding]:
    """Yield a warning where conditions train on fewer than `FEW_ROWS` rows of a file or taskset.

    Args:
        loaded: A sweep whose files can be read (`require_usable`).
        base: Folder to which relative paths refer.

    """
    labels: dict[tuple[str, int], list[str]] = {}
    counts: dict[str, int] = {}
    for condition in loaded.conditions:
        env = TrialConfig.model_validate(condition.config).env
        if not isinstance(env, VerifiedConfig | CustomEnvConfig):
            continue
        key = canonical_json(condition.config["env"])
        n = counts[key] = counts[key] if key in counts else _train_rows(env, base)
        if n < FEW_ROWS:
            labels.setdefault((_source_of(env), n), []).append(condition.label)
    for (source, n), own in labels.items():
        yield warning(
            "S8.few_rows",
            f"{listed(own)} would train on {n} row{'s' * (n != 1)} of {source}: what they learn "
            "may be these rows alone.",
            f"Give {FEW_ROWS} or more (env.train, env.train_tasks, smaller shares for heldout and "
            "test), or accept this with the reason why so few are enough.",
        )


def _source_of(env: VerifiedConfig | CustomEnvConfig) -> str:
    """Return where the rows come from, as a message names it."""
    if isinstance(env, VerifiedConfig):
        return env.source or str(env.train)
    return f"taskset {env.arguments.get('id')}" if env.factory == TASKSET_ENV else env.factory


def _train_rows(env: VerifiedConfig | CustomEnvConfig, base: Path) -> int:
    """Return on how many rows is trained; what makes its tasks makes as many as are asked for."""
    if isinstance(env, VerifiedConfig) and env.source is not None:
        return env.train_tasks
    made = env_maker(env, None, base)()
    if not supports(made, HasParts):
        return max(env.train_tasks, FEW_ROWS)
    return min(env.train_tasks, len(made.part_seeds("train")))
