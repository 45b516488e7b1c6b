"""`rltune status`, `rltune audit`: they read a run folder only."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from rltune.cli.console import emit_json, is_live, make_console, show
from rltune.cli.options import RUNS, Json, RunFolder, RunsDir

if TYPE_CHECKING:
    from rltune.report.status import StatusReader

_WATCH_S = 2.0


def status(
    folder: RunFolder = None,
    runs_dir: RunsDir = RUNS,
    as_json: Json = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on until the sweep's driver ends.")
    ] = False,
) -> None:
    """Show where every trial is, from the files alone. Exit code 1 when a trial failed."""
    from rltune.report.folder import find_run, read_folder
    from rltune.report.render_run import status_view
    from rltune.report.status import StatusReader

    reader = StatusReader(read_folder(find_run(folder, runs_dir)))
    if watch and not as_json:
        _watch(reader)
    state = reader.read()
    if as_json:
        emit_json(state)
    else:
        show(status_view(state))
    raise typer.Exit(1 if state.has_failed else 0)


def _watch(reader: "StatusReader") -> None:
    from rltune.report.live import make_progress

    console = make_console()
    with make_progress(
        console, is_live=is_live(console), say=console.print, clock=clock
    ) as progress:
        while (state := reader.read()).driver is not None:
            progress.show(state)
            time.sleep(_WATCH_S)


def clock() -> str:
    """Return the time of day."""
    return time.strftime("%H:%M:%S")


def audit(folder: RunFolder = None, runs_dir: RunsDir = RUNS, as_json: Json = False) -> None:
    """Prove from the records that what really ran is comparable. Exit code 1 when it is not.

    Incomplete is not failed: while there is nothing to compare yet and no error, the code is 0.
    """
    from rltune.report.audit import Verdict, audit_folder
    from rltune.report.folder import find_run, read_folder, read_records
    from rltune.report.render_run import audit_view

    found = read_folder(find_run(folder, runs_dir))
    result = audit_folder(found, read_records(found))
    if as_json:
        emit_json(result.to_json())
    else:
        show(audit_view(result))
    raise typer.Exit(0 if result.verdict in (Verdict.PASSED, Verdict.INCOMPLETE) else 1)
