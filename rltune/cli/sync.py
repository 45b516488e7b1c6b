"""`rltune sync`: upload a sweep's offline W&B runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rltune.analysis.status import read_state
from rltune.analysis.trial_states import TrialState
from rltune.cli.console import emit_json, show, warn
from rltune.cli.options import RUNS, Json, RunFolder, RunsDir
from rltune.report.render import line, plural
from rltune.store.jsonl import read_metrics
from rltune.store.run_folder import find_run, read_folder
from rltune.store.rundir import TrialDir
from rltune.store.secret import masked
from rltune.track.make import outcome_summary, write_history
from rltune.track.sync import (
    OFFLINE,
    is_empty,
    is_synced,
    offline_problem,
    require_server,
    sessions,
    upload,
    whole_until,
)
from rltune.types import TrialStatus

Outcome = Literal["uploaded", "was uploaded", "to upload", "still runs", "no run", "failed"]


@dataclass(frozen=True, slots=True)
class Synced:
    """Outcome of one trial's upload."""

    trial_id: str
    outcome: Outcome
    sessions: int
    reason: str = ""


def sync(
    folder: RunFolder = None,
    runs_dir: RunsDir = RUNS,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be uploaded; needs no API key.")
    ] = False,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", min=1, metavar="SECONDS", help="Longest wait per trial."),
    ] = 600.0,
    as_json: Json = False,
) -> None:
    """Upload the offline W&B runs of a sweep and its children, trial by trial, each session once.

    Running trials are left for the next call. A killed trial first gets a session with all its
    metrics. Needs `wandb login` or WANDB_API_KEY.

    Example:
      rltune sync runs/kl-55b4c751
      rltune sync --dry-run

    """
    sweep = read_folder(find_run(folder, runs_dir))
    if not dry_run:
        require_server()
    whole, done = read_state(sweep), []
    children = (one.trial for one in whole.derived if one.kind == "child")
    for state in (*whole.trials, *children):
        done.append(_sync(state, whole.metric_name, dry_run=dry_run, timeout_s=timeout_s))
        if not as_json:
            _say(done[-1])
    if as_json:
        emit_json({"run": str(sweep.run.path), "trials": done})
    raise typer.Exit(int(any(one.outcome == "failed" for one in done)))


def warn_of_offline(config: Mapping[str, Any]) -> None:
    """Warn before a sweep starts if its trials are to log online but cannot reach W&B."""
    if config["tracking"]["wandb"] != "online":
        return
    if (problem := offline_problem()) is not None:
        warn(f"W&B cannot be used online. {problem.where}: {problem.what} {OFFLINE}")


def _sync(state: TrialState, metric: str, *, dry_run: bool, timeout_s: float) -> Synced:
    trial = TrialDir(Path(state.log).parent)
    written = sessions(trial.path)
    is_cut_off = _is_cut_off(trial, has_sessions=bool(written))
    if not written and not is_cut_off:
        return Synced(state.trial_id, "no run", 0)
    if state.status is TrialStatus.RUNNING:
        return Synced(state.trial_id, "still runs", len(written))
    if is_cut_off and not dry_run:
        if reason := _write_history(trial, state.status, metric):
            return Synced(state.trial_id, "failed", len(written), masked(reason))
        written, is_cut_off = sessions(trial.path), False
    left = [session for session in written if not (is_synced(session) or is_empty(session))]
    n_left = len(left) + is_cut_off  # the session that is written first
    if not n_left:
        is_there = any(map(is_synced, written))
        return Synced(state.trial_id, "was uploaded" if is_there else "no run", 0)
    if dry_run:
        return Synced(state.trial_id, "to upload", n_left)
    reason = upload(left, timeout_s=timeout_s)
    return Synced(state.trial_id, "failed" if reason else "uploaded", n_left, masked(reason))


def _is_cut_off(trial: TrialDir, *, has_sessions: bool) -> bool:
    """Return whether the last process was killed: no session is known to hold all metrics.

    Told by steps, not by the names of sessions: those have the local time of their machine.
    """
    is_offline = has_sessions or _tracking(trial) == "offline"
    last = max((int(row["step"]) for row in read_metrics(trial.metrics).rows), default=-1)
    return is_offline and last > whole_until(trial.path)


def _tracking(trial: TrialDir) -> str:
    has_spec = trial.spec.exists()
    return str(trial.read_spec().config["tracking"]["wandb"]) if has_spec else "disabled"


def _write_history(trial: TrialDir, status: TrialStatus, metric: str) -> str:
    """Write a session with the trial's whole metrics; return why that failed, empty if not."""
    rows, result = read_metrics(trial.metrics).rows, trial.read_done()
    warnings: list[str] = []
    write_history(
        trial.read_spec(),
        trial.path,
        rows,
        status=status,
        summary=outcome_summary(result, rows, metric=metric) if result else {},
        warn=warnings.append,
    )
    return warnings[0] if warnings else ""


def _say(one: Synced) -> None:
    many = f" ({plural(one.sessions, 'session')})" if one.sessions else ""
    why = f": {one.reason}" if one.reason else ""
    show(line(f"{one.trial_id}: {one.outcome}{many}{why}", "bold red" if one.reason else ""))
