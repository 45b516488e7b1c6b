"""`rltune status` and `rltune audit`: read a run folder."""

import time
from typing import Annotated

import typer

from rltune.analysis.audit import AuditVerdict, audit_folder
from rltune.analysis.status import StatusReader
from rltune.analysis.trial_states import state_json
from rltune.cli.console import answer, is_live, make_console
from rltune.cli.options import RUNS, Json, RunFolder, RunsDir
from rltune.errors import InputError, Problem
from rltune.report.live import make_progress
from rltune.report.render_run import audit_view
from rltune.report.render_status import bad_lines, status_view
from rltune.runner.interrupts import interrupt, stop_on_signal
from rltune.store.run_folder import find_run, read_folder, read_records

_WATCH_S = 1.0


def status(
    folder: RunFolder = None,
    runs_dir: RunsDir = RUNS,
    as_json: Json = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Keep updating until the sweep's driver ends; Ctrl-C stops watching."
        ),
    ] = False,
) -> None:
    """Show the state of every trial, from the files only. Exit code 1 if a trial failed.

    Example:
      rltune status
      rltune status runs/kl-55b4c751 --watch

    """
    if watch and as_json:
        what = "--json prints the current state once."
        raise InputError(Problem("--watch", what, action="Leave one of them out."))
    reader = StatusReader(read_folder(find_run(folder, runs_dir)))
    if watch and not _watch(reader):
        raise typer.Exit(0)
    state = reader.read()
    answer(state_json(state), status_view(state), as_json=as_json)
    raise typer.Exit(1 if state.has_failed else 0)


def _watch(reader: StatusReader) -> bool:
    """Show the sweep until its driver ends; return False after Ctrl-C."""
    console = make_console()
    redraws = is_live(console)
    state = reader.read()
    if state.driver is None:
        return True
    for item in bad_lines(state.trials) if redraws else [status_view(state)]:
        console.print(item)
    progress = make_progress(
        console,
        is_live=redraws,
        say=lambda text: console.print(text, soft_wrap=True),
        clock=clock,
    )
    try:
        with stop_on_signal(interrupt), progress:
            while state.driver is not None and not console.quiet:
                progress.show(state)
                time.sleep(_WATCH_S)
                state = reader.read()
    except KeyboardInterrupt:
        if redraws and console.file.isatty():  # SIGHUP: it may be gone
            console.print(status_view(state))
        return False
    return True


def clock() -> str:
    """Return the time of day."""
    return time.strftime("%H:%M:%S")


def audit(folder: RunFolder = None, runs_dir: RunsDir = RUNS, as_json: Json = False) -> None:
    """Prove from the records that what ran is comparable. Exit code 1 if it is not.

    An incomplete sweep has not failed: as long as no error is found, the exit code is 0.

    Example:
      rltune audit runs/kl-55b4c751

    """
    sweep = read_folder(find_run(folder, runs_dir))
    result = audit_folder(sweep, read_records(sweep))
    answer(result.to_json(), audit_view(result), as_json=as_json)
    raise typer.Exit(0 if result.verdict in (AuditVerdict.PASSED, AuditVerdict.INCOMPLETE) else 1)
