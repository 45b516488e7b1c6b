"""S8.few_rows: training on a handful of rows teaches those rows."""

from collections.abc import Iterator
from pathlib import Path

from rltune.comparability.findings import Finding, listed, warning
from rltune.spec.identity import canonical_json
from rltune.spec.load import LoadedSweep
from rltune.spec.schema.env_verified import VerifiedConfig
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.tasks import env_maker
from rltune_envs.protocols import HasParts, require

FEW_ROWS = 100
"""Fewer training rows than this are named, and must be accepted with a reason."""


def few_rows(loaded: LoadedSweep, base: Path) -> Iterator[Finding]:
    """Yield a warning where conditions train on fewer than `FEW_ROWS` rows of a file.

    Args:
        loaded: A sweep whose files can be read (`require_usable`).
        base: Folder to which relative paths refer.

    """
    labels: dict[tuple[str, int], list[str]] = {}
    counts: dict[str, int] = {}
    for condition in loaded.conditions:
        env = TrialConfig.model_validate(condition.config).env
        if not isinstance(env, VerifiedConfig):
            continue
        key = canonical_json(condition.config["env"])
        n = counts[key] = counts[key] if key in counts else _train_rows(env, base)
        if n < FEW_ROWS:
            labels.setdefault((env.source or env.train or "", n), []).append(condition.label)
    for (source, n), own in labels.items():
        yield warning(
            "S8.few_rows",
            f"{listed(own)} would train on {n} row{'s' * (n != 1)} of {source}: what they learn "
            "may be these rows alone.",
            f"Give {FEW_ROWS} or more (env.train, env.train_tasks, smaller shares for heldout and "
            "test), or accept this with the reason why so few are enough.",
        )


def _train_rows(env: VerifiedConfig, base: Path) -> int:
    """Return on how many rows is trained; a generator makes as many as are asked for."""
    if env.source is not None:
        return env.train_tasks
    parts = require(env_maker(env, None, base)(), HasParts)
    return min(env.train_tasks, len(parts.part_seeds("train")))
