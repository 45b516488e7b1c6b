"""The end of `rltune sweep`: failures, closing table, lineage report, paths and audit."""

from rich.console import Console

from rltune.analysis.audit import audit_folder
from rltune.analysis.status import read_state
from rltune.analysis.summary import close_sweep
from rltune.cli.console import warn
from rltune.errors import StoreError
from rltune.lineage.table import LineageStore
from rltune.report.lineage_files import write_lineage_report
from rltune.report.render import short_path
from rltune.report.render_run import audit_view, closing_view, paths_view
from rltune.report.render_status import bad_lines
from rltune.store.run_folder import read_folder, read_records
from rltune.store.rundir import RunDir


def report_end(run: RunDir, console: Console) -> bool:
    """Print the failures, the closing table, the paths and the audit.

    Returns:
        Whether no trial failed and the audit found no error. A sweep that is confounded on purpose
        did what was asked for; `rltune audit` is the command that judges it.

    """
    folder = read_folder(run)
    state, read = read_state(folder), read_records(folder)
    audit = audit_folder(folder, read)
    for item in bad_lines(state.trials):
        console.print(item)
    if any(record.result is not None for record in read.records):
        console.print()
        console.print(closing_view(close_sweep(folder, read.records, audit), width=console.width))
    refresh_lineage_report(run)
    console.print()
    console.print(paths_view(written(run)))
    if any(run.trials.glob("*/wandb/offline-run-*")):
        hint = f"  to W&B when you like: rltune sync {short_path(run.path)}"
        console.print(hint, soft_wrap=True)
    console.print()
    console.print(audit_view(audit))
    return audit.report.ok and not state.has_failed


def refresh_lineage_report(run: RunDir) -> None:
    """Render the lineage into the run folder. What cannot be rendered must not fail a sweep."""
    if not run.results.exists():
        return
    try:
        store = LineageStore.open(run.results)
        launches = [row.job_name for row in store.read().rows if row.job_name]
        write_lineage_report(store, run.path, name=launches[-1] if launches else "")
    except (StoreError, OSError) as error:
        warn(f"warning: the lineage was not rendered: {error}")


def written(run: RunDir) -> dict[str, str]:
    """Return the existing files of a sweep: name -> path."""
    paths = {
        "trials": run.trials,
        "lineage": run.results,
        "what was learned": run.path / "KNOWLEDGE.md",
        "leaderboard": run.path / "LEADERBOARD.md",
        "held-out tasks": run.tasks(),
        "plan": run.plan,
        "proof": run.comparability,
        "audit": run.audit,
        "looks": run.looks,
        "ledger": run.ledger,
    }
    return {name: str(path) for name, path in paths.items() if path.exists()}
