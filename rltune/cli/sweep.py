"""`rltune sweep`: prove the sweep, run its trials, report and audit the results."""

import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rltune.analysis.status import StatusReader
from rltune.cli.console import is_live, make_console, warn
from rltune.cli.inspect import clock
from rltune.cli.options import (
    RUNS,
    Effect,
    MaxSeeds,
    NoCustomCode,
    Overrides,
    Profile,
    RunsDir,
    Seeds,
    SweepFile,
    Until,
    parse_budget,
    parse_seeds,
    require_runs_dir,
    with_looks,
)
from rltune.cli.sweep_end import report_end
from rltune.cli.sync import warn_of_offline
from rltune.comparability.findings import ComparabilityReport
from rltune.errors import InputError, Problem
from rltune.forecast.cost import measure
from rltune.report.live import Progress, make_progress
from rltune.report.plan import make_plan, plan_view
from rltune.report.render import duration, plural, short_path
from rltune.report.render_check import proof_view
from rltune.report.render_status import counts
from rltune.runner.budget import Deadline, Declined, TimeEstimate, estimate
from rltune.runner.folder import unfinished_before
from rltune.runner.interrupts import interrupt, stop_on_signal
from rltune.runner.proof import require_proven
from rltune.runner.spend import overspent
from rltune.runner.sweep import SweepOutcome, SweepRequest, run_sweep
from rltune.spec.expand import expand
from rltune.spec.load import LoadedSweep, load_sweep
from rltune.store.run_folder import read_folder
from rltune.store.rundir import RunDir, trial_status
from rltune.trainer.preflight.prices import prices_of, require_countable
from rltune.types import TrialSpec


def sweep(
    file: SweepFile,
    profile: Profile = None,
    seeds: Seeds = None,
    until: Until = None,
    max_seeds: MaxSeeds = None,
    effect: Effect = None,
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS,
    max_concurrent: Annotated[
        int | None,
        typer.Option(
            "--max-concurrent", min=1, help="Most trials at a time (default: as many as fit)."
        ),
    ] = None,
    max_trials: Annotated[
        int | None,
        typer.Option("--max-trials", min=1, help="Most trials to start (default: all)."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="8h",
            help="Start only trials that can finish within this time. With a training service also "
            "20USD or 5000requests, after which trials end at a checkpoint.",
        ),
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(
            "--ray-address", metavar="ADDRESS", help="Address of a running Ray cluster to use."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Prove and plan only; start no trial.")
    ] = False,
    lineage: Annotated[
        Path | None,
        typer.Option(
            "--lineage",
            metavar="TABLE",
            help="Lineage table shared by several sweeps; it gets a copy of every row.",
        ),
    ] = None,
    allow_confounded: Annotated[
        str | None,
        typer.Option(
            "--allow-confounded",
            metavar="WHY",
            help="Run even if more than the axis differs; disqualifies every row.",
        ),
    ] = None,
    no_custom_code: NoCustomCode = False,
) -> None:
    """Run a sweep, or the trials still missing; repeat the command to resume after a stop.

    Example:
      rltune sweep sweeps/quickstart.yaml
      rltune sweep sweeps/kl.yaml --set budget.steps=20 --seeds 0
      rltune sweep sweeps/kl.yaml --budget 8h
      rltune sweep sweeps/kl.yaml --until decided --max-seeds 12 --effect 0.05

    """
    if allow_confounded is not None and not allow_confounded.strip():
        raise InputError(Problem("--allow-confounded", "the reason is empty.", "Write a sentence."))
    most = parse_budget(budget)
    loaded = load_sweep(file, profile=profile, overrides=overrides or (), seeds=parse_seeds(seeds))
    loaded = with_looks(loaded, until, max_seeds, effect)
    require_runs_dir(runs_dir, loaded.run_name)
    if most.spend is not None:
        require_countable(loaded, most.spend.currency, Path.cwd())
    console = make_console()
    proof = show_proof(loaded, console, allow_confounded, no_custom_code=no_custom_code)
    if dry_run:
        _show_plan(loaded, console, runs_dir)
        return
    warn_of_offline(loaded.control.config)
    request = SweepRequest(
        loaded=loaded,
        runs_dir=runs_dir,
        max_concurrent=max_concurrent,
        ray_address=ray_address,
        allow_confounded=allow_confounded,
        argv=tuple(sys.argv),
        max_trials=max_trials,
        deadline=None if most.seconds is None else deadline_of(loaded, runs_dir, most.seconds),
        spend=most.spend,
        lineage=lineage,
        proof=proof,
    )
    raise typer.Exit(run(request, console))


def show_proof(
    loaded: LoadedSweep, console: Console, allow_confounded: str | None, *, no_custom_code: bool
) -> ComparabilityReport:
    """Print the comparability proof and return it; see `require_proven`."""
    report = require_proven(
        loaded,
        Path.cwd(),
        allow_confounded=allow_confounded,
        no_custom_code=no_custom_code,
        show=lambda report: console.print(proof_view(loaded, report)),
    )
    if not report.ok:
        console.print(f"Running anyway, with every row disqualified: {allow_confounded}")
    return report


def _show_plan(loaded: LoadedSweep, console: Console, runs_dir: Path) -> None:
    measured = measure(runs_dir, loaded.run_name, loaded.spec.name)
    console.print()
    console.print(
        plan_view(make_plan(loaded, expand(loaded), measured, prices_of(loaded, Path.cwd())))
    )
    console.print("Nothing was started (--dry-run).")


def deadline_of(loaded: LoadedSweep, runs_dir: Path, budget_s: float) -> Deadline:
    """Return the deadline of a launch that starts now, with the step times of an earlier run."""
    measured = measure(runs_dir, loaded.run_name, loaded.spec.name)
    at = time.time() + budget_s
    return Deadline(at) if measured is None else Deadline(at, measured.step_s, measured.source)


def run(request: SweepRequest, console: Console) -> int:
    """Run the trials and report; return the exit code."""
    say = partial(console.print, soft_wrap=True)  # one event is one line, however long
    progress = make_progress(console, is_live=is_live(console), say=say, clock=clock)
    watcher = Watcher(console, progress, request.deadline)
    _warn_of_unfinished(request)
    with stop_on_signal(interrupt), progress:  # around what the sweep itself does at a signal
        outcome = run_sweep(
            request,
            on_start=watcher.start,
            on_tick=watcher.tick,
            say=lambda text: say(f"{clock()} {text}"),
        )
        watcher.tick()
    for late in outcome.declined:
        console.print(f"Not started: {late_text(late)}", soft_wrap=True)
    if spent := overspent(outcome.run, request.spend):
        console.print(f"No further trial starts: {spent}.", soft_wrap=True)
    if not outcome.begun and all(status.is_finished for status in outcome.statuses.values()):
        console.print("Nothing was left to run: every trial has already finished.")
    is_sound = report_end(outcome.run, console)
    if outcome.is_interrupted:
        warn("interrupted; run the same command to resume.")
        return 3
    left = {name for name, status in outcome.statuses.items() if not status.is_finished}
    if left:
        console.print(f"{plural(len(left), 'trial')} left; the same command goes on.")
    return 0 if is_sound and left <= _asked_to_leave(request, outcome) else 1


def _warn_of_unfinished(request: SweepRequest) -> None:
    """Say that a new folder begins although the same command has begun one: once, at its start."""
    new = RunDir(request.runs_dir / request.loaded.run_name)
    if new.plan.exists():
        return
    for run in unfinished_before(request.runs_dir, request.loaded):
        warn(
            f"warning: {short_path(run.path)} is an unfinished run of this sweep file, but a file "
            "that it names was edited since, or rltune's config keys are newer. It is not resumed: "
            f"{short_path(new.path)} begins."
        )


def _asked_to_leave(request: SweepRequest, outcome: SweepOutcome) -> set[str]:
    """Return the trials that may be left: those that the command's limits kept from starting."""
    declined = {late.estimate.trial_id for late in outcome.declined}
    waiting = outcome.statuses.keys() - outcome.begun
    if overspent(outcome.run, request.spend):
        return outcome.statuses.keys() - _failed(outcome)
    return declined | (waiting if request.max_trials is not None else set())


def _failed(outcome: SweepOutcome) -> set[str]:
    return {name for name, status in outcome.statuses.items() if status.is_failure}


def late_text(late: Declined) -> str:
    """Return the time that a trial needs and the time that is left."""
    return f"{estimate_text(late.estimate)}, and {duration(late.left_s)} are left"


def estimate_text(rest: TimeEstimate) -> str:
    """Return the estimated time of a trial, and its source."""
    if rest.step_s is None:
        return f"{rest.trial_id}: {plural(rest.steps, 'step')}, {rest.source}"
    return (
        f"{rest.trial_id}: {duration(rest.seconds)} = {rest.start_s:.2f} s to the first gate + "
        f"{plural(rest.steps, 'step')} of {rest.step_s:.2f} s ({rest.source})"
    )


class Watcher:
    """Feeds the progress display. A display that fails must not end a sweep.

    Args:
        console: Where to print.
        progress: The display.
        deadline: When the launch should be over, if ever; the start explains the estimate.

    """

    def __init__(
        self, console: Console, progress: Progress, deadline: Deadline | None = None
    ) -> None:
        self._console = console
        self._progress = progress
        self._deadline = deadline
        self._reader: StatusReader | None = None

    def start(self, run: RunDir, specs: Sequence[TrialSpec]) -> None:
        """Print what is going to run, once the run folder is written: of each block of seeds."""
        folder, is_first = read_folder(run), self._reader is None
        self._reader = StatusReader(folder)
        if is_first:
            self._console.print()
            self._console.print(f"Run folder {short_path(run.path)}", soft_wrap=True)
        so_far = " so far" if folder.until is not None else ""
        self._console.print(f"{len(specs)} trials{so_far}: {counts(self._reader.read().trials)}")
        self._say_budget(run, specs)
        self.tick()

    def _say_budget(self, run: RunDir, specs: Sequence[TrialSpec]) -> None:
        if self._deadline is None:
            return
        end = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._deadline.at))
        self._console.print(f"No trial starts that cannot finish by {end}. What is left:")
        for spec in specs:
            if not trial_status(run.trial(spec.trial_id)).is_finished:
                text = estimate_text(estimate(run, spec, self._deadline))
                self._console.print(f"  {text}", soft_wrap=True)

    def tick(self) -> None:
        """Show the state of now."""
        if self._reader is None:
            return
        try:
            self._progress.show(self._reader.read())
        except Exception as error:  # whatever it is, the trials are worth more than the display
            self._reader = None
            why = f"{type(error).__name__}: {error}"
            warn(f"warning: progress cannot be shown ({why}); the sweep goes on.")
