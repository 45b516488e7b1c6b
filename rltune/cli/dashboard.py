"""`rltune dashboard`: the W&B workspace and report of a sweep."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rltune.analysis.audit import judge_folder
from rltune.cli.console import emit_json, show
from rltune.cli.options import RUNS, Json, RunFolder, RunsDir
from rltune.errors import InputError, Problem
from rltune.report.render import line, short_path
from rltune.store.files import write_text_atomic
from rltune.store.run_folder import SweepFolder, find_run, read_folder, read_records
from rltune.store.secret import masked
from rltune.track.dashboard import Dashboard, as_json, build
from rltune.track.sync import has_key, require_server


def dashboard(
    folder: RunFolder = None,
    runs_dir: RunsDir = RUNS,
    save: Annotated[
        bool | None,
        typer.Option(
            "--save/--no-save",
            help="Save online, or write JSON only (default: online if a W&B key is set).",
            show_default=False,
        ),
    ] = None,
    entity: Annotated[
        str, typer.Option("--entity", metavar="NAME", help="W&B team (default: your own).")
    ] = "",
    as_json: Json = False,
) -> None:
    """Build the sweep's W&B workspace and report: curves by condition with their range over seeds.

    Without an account both are written to DIR/wandb as JSON.

    Example:
      rltune dashboard runs/kl-55b4c751
      rltune dashboard --no-save

    """
    sweep = read_folder(find_run(folder, runs_dir))
    is_saved = has_key() if save is None else save
    if is_saved:
        require_server()
    built = dict(zip(("workspace", "report"), build(_about(sweep, entity)), strict=True))
    places = _save(built) if is_saved else _write(built, sweep.run.path / "wandb")
    if as_json:
        emit_json({"saved": is_saved, **places})
        return
    for name, place in places.items():
        show(line(f"{name}: {place}"))
    if not is_saved:
        show(line("Not saved online. Run `wandb login`, `rltune sync`, then this again."))


def _about(sweep: SweepFolder, entity: str) -> Dashboard:
    audit = judge_folder(sweep, read_records(sweep))
    tracking = [spec.config.get("tracking", {}).get("project") for spec in sweep.specs]
    return Dashboard(
        sweep=sweep.name,
        title=sweep.title,
        question=sweep.question,
        verdict="passed" if audit.report.ok else "failed: see `rltune audit`",
        project=next((name for name in tracking if name), sweep.name),
        entity=entity,
    )


def _save(built: dict[str, Any]) -> dict[str, str]:
    urls = {}
    for name, one in built.items():
        try:
            urls[name] = str(one.save().url)
        except Exception as error:  # whatever the service answers
            what = f"W&B did not save the {name}: {masked(str(error)).rstrip(chr(46))}."
            action = "Run `rltune sync` first; --no-save writes it as JSON."
            raise InputError(Problem("rltune dashboard", what, action=action)) from error
    return urls


def _write(built: dict[str, Any], folder: Path) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    paths = {}
    for name, one in built.items():
        write_text_atomic(folder / f"{name}.json", as_json(one) + "\n")
        paths[name] = short_path(folder / f"{name}.json")
    return paths
