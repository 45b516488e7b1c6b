"""`rltune next`: run one trial of a sweep, the one that is due."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from rltune.cli.console import make_console
from rltune.cli.options import (
    RUNS,
    NoCustomCode,
    Overrides,
    Profile,
    RunsDir,
    Seeds,
    parse_seeds,
    require_runs_dir,
)
from rltune.cli.study import run_study
from rltune.cli.sweep import run, show_proof
from rltune.errors import InputError, Problem, StoreError
from rltune.runner.sweep import SweepRequest
from rltune.spec.load import LoadedSweep, load_sweep
from rltune.spec.trial_reference import looking_in_runs
from rltune.store.files import read_json
from rltune.store.proof import confounded_reason
from rltune.store.run_folder import find_run, planned_looks
from rltune.study.load import is_study, load_study


def next_trial(
    sweep: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|DIR", help="Sweep file, run folder or study file.", show_default=False
        ),
    ],
    profile: Profile = None,
    seeds: Seeds = None,
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS,
    no_custom_code: NoCustomCode = False,
) -> None:
    """Run one trial of a sweep: an interrupted one first, then a new one, then a failed one.

    A run folder is run with the profile, seeds and overrides of its last launch. Of a study, the
    trial is one of the sweep that is due.

    Example:
      rltune next sweeps/kl.yaml
      rltune next runs/kl-55b4c751
      rltune next studies/nights.yaml

    """
    if is_study(sweep):
        _require_bare(profile, seeds, overrides or (), "study")
        study = load_study(sweep)
        raise typer.Exit(run_study(study, runs_dir, max_trials=1, no_custom_code=no_custom_code))
    allowed = None
    if sweep.is_dir():
        _require_bare(profile, seeds, overrides or (), "run folder")
        loaded, allowed = _loaded_again(sweep)
        runs_dir = sweep.resolve().parent
    else:
        chosen = parse_seeds(seeds)
        loaded = load_sweep(sweep, profile=profile, overrides=overrides or (), seeds=chosen)
    require_runs_dir(runs_dir, loaded.run_name)
    console = make_console()
    with looking_in_runs(runs_dir):  # that of the run folder
        proof = show_proof(loaded, console, allowed, no_custom_code=no_custom_code)
        request = SweepRequest(
            loaded=loaded,
            runs_dir=runs_dir,
            max_concurrent=1,
            ray_address=None,
            allow_confounded=allowed,
            argv=tuple(sys.argv),
            max_trials=1,
            proof=proof,
        )
        raise typer.Exit(run(request, console))


def _require_bare(
    profile: str | None, seeds: str | None, overrides: Sequence[str], owner: str
) -> None:
    given = {"--profile": profile, "--seeds": seeds, "--set": overrides}
    for option, value in given.items():
        if value:
            what = f"a {owner} already sets it."
            raise InputError(Problem(option, what, action="Give the sweep file to change it."))


def _loaded_again(folder: Path) -> tuple[LoadedSweep, str | None]:
    """Return the sweep of a run folder as its last launch had it, and why it may be confounded.

    Raises:
        StoreError: It is not a run folder, or the sweep's files have changed.

    """
    run = find_run(folder, folder.parent)
    plan: Any = read_json(run.plan)
    try:
        file, profile = Path(plan["file"]), plan["profile"]
        overrides, seeds = tuple(plan["overrides"]), tuple(plan["seeds"])
    except (KeyError, TypeError) as error:
        raise StoreError(Problem(str(run.plan), f"is not an rltune plan ({error!r}).")) from error
    if not file.is_file():
        what = f"its sweep file {str(file)!r} is not here."
        action = "Run this where the sweep was started, or give the sweep file."
        raise StoreError(Problem(str(run.path), what, action=action))
    loaded = load_sweep(file, profile=profile, overrides=overrides, seeds=seeds)
    loaded = replace(loaded, until=planned_looks(run))
    if loaded.run_name != folder.resolve().name:
        what = f"{file} now makes {loaded.run_name}: it, or a file that it names, was edited, or "
        what += "rltune's config keys are newer."
        action = "Restore it, or give the sweep file to run it as it is now."
        raise StoreError(Problem(str(run.path), what, action=action))
    return loaded, confounded_reason(run) or None
