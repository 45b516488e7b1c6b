"""The plan of a sweep as data: what `rltune plan --json` prints and plan.json records."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rltune.spec.load import LoadedSweep
from rltune.types import TrialSpec

FORMAT = "rltune-plan-1"


def plan_json(
    loaded: LoadedSweep, specs: Sequence[TrialSpec], *, tasks: Mapping[str, str] | None
) -> dict[str, Any]:
    """Return every trial with every default spelled out.

    Args:
        loaded: The sweep.
        specs: Its trials, in the order to run.
        tasks: File name of each frozen task manifest and its sha256; None before they are drawn.

    """
    return {
        "format": FORMAT,
        "sweep": loaded.spec.name,
        "title": loaded.spec.title,
        "question": loaded.spec.question,
        "sweep_hash": loaded.sweep_hash,
        "file": str(loaded.path),
        "profile": loaded.profile,
        "overrides": list(loaded.overrides),
        "seeds": list(loaded.seeds),
        "until": None if loaded.until is None else asdict(loaded.until),
        "metric": {"name": loaded.spec.metric.name, "mode": loaded.spec.metric.mode},
        "tasks": None if tasks is None else dict(tasks),
        "trials": [asdict(spec) for spec in specs],
    }
