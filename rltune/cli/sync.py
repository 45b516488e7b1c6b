"""`rltune sync`: upload a sweep's offline W&B runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rltune.cli.console import emit_json, show, warn
from rltune.cli.options import RUNS, Json, RunFolder, RunsDir

if TYPE_CHECKING:
    from rltune.report.states import TrialState

Outcome = Literal["uploaded", "was uploaded", "to upload", "still runs", "no run", "failed"]


@dataclass(frozen=True, slots=True)
class Synced:
    """What became of one trial's W&B run."""

    trial_id: str
    outcome: Outcome
    sessions: int
    reason: str = ""


def sync(
    folder: RunFolder = None,
    runs_dir: RunsDir = RUNS,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be uploaded; needs no key.")
    ] = False,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", min=1, metavar="SECONDS", help="Longest wait for one trial."),
    ] = 600.0,
    as_json: Json = False,
) -> None:
    """Upload the offline W&B runs of a sweep and its children, trial by trial, each session once.

    A trial that runs now is left for the next call. Needs `wandb login` or WANDB_API_KEY.
    """
    from rltune.report.folder import find_run, read_folder
    from rltune.report.status import read_state
    from rltune.track.sync import require_server

    found = read_folder(find_run(folder, runs_dir))
    if not dry_run:
        require_server()
    whole, done = read_state(found), []
    children = (one.trial for one in whole.derived if one.kind == "child")
    for state in (*whole.trials, *children):
        done.append(_sync(state, dry_run=dry_run, timeout_s=timeout_s))
        if not as_json:
            _say(done[-1])
    if as_json:
        emit_json({"run": str(found.run.path), "trials": done})
    raise typer.Exit(int(any(one.outcome == "failed" for one in done)))


def warn_of_offline(config: Mapping[str, Any]) -> None:
    """Say once, before a sweep starts, that its trials cannot reach W&B although they should."""
    if config["tracking"]["wandb"] != "online":
        return
    from rltune.track.sync import OFFLINE, offline_problem

    if (problem := offline_problem()) is not None:
        warn(f"W&B cannot be used online. {problem.where}: {problem.what} {OFFLINE}")


def _sync(state: "TrialState", *, dry_run: bool, timeout_s: float) -> Synced:
    from rltune.store.secret import masked
    from rltune.track.sync import is_synced, sessions, upload
    from rltune.types import TrialStatus

    whole = sessions(Path(state.log).parent)
    left = [session for session in whole if not is_synced(session)]

    def outcome(what: Outcome, reason: str = "") -> Synced:
        return Synced(state.trial_id, what, len(left), reason)

    if not whole:
        return outcome("no run")
    if state.status is TrialStatus.RUNNING:
        return outcome("still runs")
    if not left:
        return outcome("was uploaded")
    if dry_run:
        return outcome("to upload")
    reason = upload(left, timeout_s=timeout_s)
    return outcome("failed", masked(reason)) if reason else outcome("uploaded")


def _say(one: Synced) -> None:
    from rltune.report.render import line, plural

    many = f" ({plural(one.sessions, 'session')})" if one.sessions else ""
    why = f": {one.reason}" if one.reason else ""
    show(line(f"{one.trial_id}: {one.outcome}{many}{why}", "bold red" if one.reason else ""))
