"""`rltune clean`: delete files that no result needs."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from rltune.cli.console import emit_json, show
from rltune.cli.options import RUNS, Json, RunFolder, RunsDir
from rltune.report.render import grid, line, plural, size, verbatim
from rltune.runner.environment import remove_ray_folders
from rltune.scratch import remove_abandoned
from rltune.store.cleaning import Spare, remove, size_of, spares
from rltune.store.lock import take_driver_lock
from rltune.store.run_folder import find_run
from rltune.store.rundir import RunDir


def clean(
    folder: RunFolder = None,
    runs_dir: RunsDir = RUNS,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be deleted; delete nothing.")
    ] = False,
    best_only: Annotated[
        bool,
        typer.Option(
            "--best-only",
            help="Keep only the chosen checkpoint of a finished trial, not its last one.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Delete files that no result needs: spare checkpoints, Ray Tune's records, partial files.

    Every record stays, and so does what an unfinished trial goes on from. A folder that a driver
    works in is refused.

    Example:
      rltune clean runs/kl-55b4c751 --dry-run
      rltune clean

    """
    run = find_run(folder, runs_dir)
    with take_driver_lock(run.lock, argv=tuple(sys.argv)):
        unneeded = spares(run, best_only=best_only)
        if not dry_run:
            remove_ray_folders(run.tune)  # before the notes go that say where they are
            remove_abandoned()
            remove(unneeded)
    if as_json:
        emit_json({"deleted": not dry_run, "spares": list(unneeded), "run": str(run.path)})
    else:
        _say(run, unneeded, dry_run=dry_run)


def _say(run: RunDir, unneeded: tuple[Spare, ...], *, dry_run: bool) -> None:
    reasons: dict[str, list[Spare]] = {}
    for spare in unneeded:
        reasons.setdefault(spare.why, []).append(spare)
    table = grid(("size", "", "what"), right=(0, 1), gap=2)
    for why, group in sorted(reasons.items()):
        table.add_row(size(sum(spare.size for spare in group)), f"{len(group)} x", why)
    total = size(sum(spare.size for spare in unneeded))
    verb = "would go" if dry_run else "deleted"
    names = (verbatim(f"  {spare.path.relative_to(run.path)}") for spare in unneeded)
    left = f"{size(size_of(run.path))} {'are there now' if dry_run else 'are left'}"
    lines: list[RenderableType] = [table, *names] if unneeded else []
    item = plural(len(unneeded), "item")
    show(Group(*lines, line(f"{item}, {total} {verb}; {left} in {Path(run.path).name}.")))
