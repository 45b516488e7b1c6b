"""Which trackers a trial gets."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from rltune.track.base import Metrics, MultiTracker, Tracker, Warn
from rltune.track.jsonl import Append, JsonlTracker
from rltune.track.wandb_tracker import WandbRun, WandbTracker, end_service, wandb_run_id
from rltune.types import TrialResult, TrialSpec, TrialStatus

WandbMode = Literal["disabled", "offline", "online"]


def wandb_id(spec: TrialSpec) -> str:
    """Return the id of a trial's W&B run; empty when its config asks for none."""
    mode = spec.config.get("tracking", {}).get("wandb", "disabled")
    return "" if mode == "disabled" else wandb_run_id(spec.trial_id)


def wandb_run(
    spec: TrialSpec, folder: Path, *, mode: Literal["offline", "online"], project: str | None
) -> WandbRun:
    """Return the W&B run of a trial.

    Condition, axis, seed and identity are in the config as well as in group and tags:
    the config survives every export.
    """
    identity = {
        "trial_id": spec.trial_id,
        "sweep": spec.sweep,
        "axis_key": spec.axis_key,
        "axis_value": spec.axis_value,
        "condition": spec.condition,
        "is_control": spec.is_control,
        "config_hash": spec.config_hash,
    }
    control = ("control",) if spec.is_control else ()
    return WandbRun(
        trial_id=spec.trial_id,
        project=project or spec.sweep,
        group=spec.sweep,
        tags=(f"axis:{spec.axis_key}", spec.condition, f"seed:{spec.seed}", *control),
        config={**spec.config, "rltune": identity},
        folder=folder,
        mode=mode,
    )


def make_trackers(
    spec: TrialSpec,
    folder: Path,
    *,
    append: Append,
    wandb: WandbMode,
    project: str | None,
    warn: Warn,
) -> MultiTracker:
    """Return the trackers of a trial: the metrics file first, then W&B unless disabled.

    `append` writes one record of the metrics; without a project W&B has one named after the sweep.
    """
    trackers: list[Tracker] = [JsonlTracker(append)]
    if wandb != "disabled":
        trackers.append(WandbTracker(wandb_run(spec, folder, mode=wandb, project=project), warn))
    return MultiTracker(tuple(trackers))


def write_history(
    spec: TrialSpec,
    folder: Path,
    rows: Sequence[Mapping[str, object]],
    *,
    status: TrialStatus,
    summary: Metrics,
    warn: Warn,
) -> None:
    """Write one more offline session of a trial, with all that its metrics file has.

    For one whose process was killed, and its session with it; it must not run now. Tables,
    histograms and artifacts of the attempt are not in the file, so they are not in the session.
    """
    project = spec.config["tracking"]["project"]
    tracker = WandbTracker(wandb_run(spec, folder, mode="offline", project=project), warn)
    tracker.resume(rows)
    tracker.summary(summary)
    tracker.close(status)
    end_service()  # only then is all of it in the file


def outcome_summary(
    result: TrialResult, rows: Sequence[Mapping[str, float | str]], *, metric: str
) -> dict[str, float | str]:
    """Return what a trial comes to: the gate that was chosen, and the steps."""
    chosen = next(row for row in reversed(rows) if row["step"] == result.best_step)
    heldout = {name: value for name, value in chosen.items() if name.startswith("heldout/")}
    steps = {"best_step": result.best_step, "final_step": result.final_step}
    return {**heldout, metric: result.heldout_metric, **steps}
