"""`rltune study`: a queue of sweeps that build on each other."""

import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group

from rltune.cli.console import emit_json, make_console, show
from rltune.cli.options import RUNS, Json, NoCustomCode, RunsDir, require_runs_dir
from rltune.cli.sweep import deadline_of, run, show_proof
from rltune.report.markdown import visible
from rltune.report.render import indent, line, plural
from rltune.runner.spend import SpendLimit, usage_of_run
from rltune.runner.sweep import SweepRequest
from rltune.spec.trial_reference import looking_in_runs
from rltune.store.lock import take_driver_lock
from rltune.study.across import require_agreement
from rltune.study.asking import may_propose, propose, require_proposer
from rltune.study.fence import Ground
from rltune.study.kept import keep_files
from rltune.study.load import Study, load_study
from rltune.study.queue import Used, beyond, due
from rltune.study.records import ACCEPTED, read_proposals, with_proposals
from rltune.study.state import Standing, rows_of, standings, used
from rltune.study.unrecorded import record_finished
from rltune.study.view import promoted_view, proposals_view, study_json, study_view
from rltune.trainer.preflight.prices import require_countable


def study(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Study file.", show_default=False)],
    runs_dir: RunsDir = RUNS,
    max_trials: Annotated[
        int | None,
        typer.Option("--max-trials", min=1, help="Most trials to start (default: all)."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show where the study stands; start no trial.")
    ] = False,
    no_custom_code: NoCustomCode = False,
    as_json: Json = False,
) -> None:
    """Run the sweeps of a study, one after the other; repeat the command to go on after a stop.

    A sweep starts when those that it needs are finished. What a sweep shows to be better is held in
    the sweeps that ask for it. A proposer, if it has one, adds sweeps once those of the file are
    finished. With --json, print where the study stands and start no trial.

    Example:
      rltune study studies/nights.yaml
      rltune study studies/nights.yaml --max-trials 1
      rltune study studies/nights.yaml --dry-run

    """
    loaded = load_study(file)
    if as_json or dry_run:
        _show_standing(loaded, runs_dir, as_json=as_json)
        return
    raise typer.Exit(
        run_study(loaded, runs_dir, max_trials=max_trials, no_custom_code=no_custom_code)
    )


def _show_standing(study: Study, runs_dir: Path, *, as_json: bool) -> None:
    """Print where a study stands; nothing is written to the runs dir, no decision either."""
    study, records = with_proposals(study, runs_dir), read_proposals(study, runs_dir)
    with tempfile.TemporaryDirectory() as work:
        found = standings(study, runs_dir, work=Path(work))
        total = used(found)
        if as_json:
            emit_json(study_json(study, found, total, records))
        else:
            show(Group(study_view(study, found, total), *proposals_view(found, records)))


def run_study(study: Study, runs_dir: Path, *, max_trials: int | None, no_custom_code: bool) -> int:
    """Run what is due until nothing is, a limit is reached, or a signal comes.

    With a limit each launch starts one trial, and the limit is looked at again.

    Returns:
        The exit code.

    """
    require_runs_dir(runs_dir, study.folder(runs_dir).path.name)
    require_proposer(study, Path.cwd(), no_custom_code=no_custom_code)
    console = make_console()
    own = study.folder(runs_dir)
    own.path.mkdir(parents=True, exist_ok=True)
    with looking_in_runs(runs_dir), take_driver_lock(own.lock, argv=tuple(sys.argv)):
        asked, study = study, with_proposals(study, runs_dir)
        found = standings(study, runs_dir)
        record_finished(found, own, argv=sys.argv)
        console.print(study_view(study, found, used(found)))
        require_agreement(study, found)
        keep_files(asked, own.path)
        return _drain(study, runs_dir, console, max_trials, no_custom_code=no_custom_code)


def _drain(
    study: Study, runs_dir: Path, console: Console, most: int | None, *, no_custom_code: bool
) -> int:
    left_alone: dict[str, bool] = {}  # sweep -> whether a limit kept its trials from starting
    started = 0
    while True:
        found = standings(study, runs_dir)
        by_name = {one.sweep.name: one for one in found}
        finished = {name for name, one in by_name.items() if one.is_finished}
        chosen = due(study.spec.sweeps, finished=finished, left_alone=left_alone)
        is_asked = chosen is None and _may_ask(study, runs_dir, finished, left_alone)
        why = _stop(study, found, most, started) if chosen is not None or is_asked else ""
        if is_asked and not why:
            ground = Ground(study, runs_dir, tuple(found), rows_of(found), no_custom_code)
            if not _propose(ground, console):
                return max(1, _end(console, found, left_alone, ""))
            study = with_proposals(study, runs_dir)
            continue
        if chosen is None or why:
            return _end(console, found, left_alone, why)
        one = by_name[chosen.name]
        code = _launch(
            study, one, used(found), runs_dir, console, most, no_custom_code=no_custom_code
        )
        started += 1
        if code == 3:
            return code
        after = next(x for x in standings(study, runs_dir) if x.sweep.name == chosen.name)
        if not after.is_finished and after.statuses == one.statuses:
            left_alone[chosen.name] = code == 0  # else its trials fail again


def _stop(study: Study, found: Sequence[Standing], most: int | None, started: int) -> str:
    """Return why no trial may start any more; empty while one may."""
    if most is not None and started >= most:
        return f"--max-trials {most}"
    return beyond(used(found), study.limits)


def _may_ask(
    study: Study, runs_dir: Path, finished: Collection[str], left_alone: Mapping[str, bool]
) -> bool:
    """Return whether a proposer is asked now: there is one, a base, and no limit was met."""
    is_free = not any(left_alone.values())
    return bool(finished) and is_free and may_propose(study, runs_dir)


def _propose(ground: Ground, console: Console) -> bool:
    """Ask for one more sweep and print what became of each proposal; return whether there is one.

    Its records are in the study's folder.
    """
    console.print()
    console.rule(f"{ground.study.spec.name}: the next sweep", align="left")
    outcome = ""
    for one in propose(ground):
        outcome = one.outcome
        console.print(f"{one.name}, try {one.attempt}: {outcome}", soft_wrap=True)
        for text in one.problems:
            console.print(indent(line(visible(text))))
    if outcome == ACCEPTED:
        return True
    console.print("The proposer gave no sweep that may run. The same command asks again.")
    return False


def _launch(
    study: Study,
    one: Standing,
    total: Used,
    runs_dir: Path,
    console: Console,
    most: int | None,
    *,
    no_custom_code: bool,
) -> int:
    """Run the trials of a sweep that are missing, or one of them; return the exit code."""
    limits = study.limits
    console.print()
    console.rule(f"{study.spec.name}: {one.sweep.name}", align="left")
    console.print(Group(*promoted_view(one)))
    if limits.amount is not None:
        require_countable(one.loaded, limits.currency, Path.cwd())
    proof = show_proof(one.loaded, console, None, no_custom_code=no_custom_code)
    request = SweepRequest(
        loaded=one.loaded,
        runs_dir=runs_dir,
        max_concurrent=None,
        ray_address=None,
        allow_confounded=None,
        argv=tuple(sys.argv),
        lineage=study.folder(runs_dir).results,
        proof=proof,
    )
    if most is not None or limits.is_any:
        request = replace(request, max_trials=1, max_concurrent=1)
    if limits.seconds is not None:
        left = limits.seconds - total.seconds
        request = replace(request, deadline=deadline_of(one.loaded, runs_dir, left))
    if limits.amount is not None:
        others = total.paid.get(limits.currency, 0.0) - _paid(one, limits.currency)
        spend = SpendLimit(amount=limits.amount - others, currency=limits.currency)
        request = replace(request, spend=spend)
    return run(request, console)


def _paid(one: Standing, currency: str) -> float:
    """Return what the trials of a sweep cost so far: a sweep's limit counts from its beginning."""
    return usage_of_run(one.run).paid.get(currency, 0.0)


def _end(
    console: Console, found: Sequence[Standing], left_alone: Mapping[str, bool], why: str
) -> int:
    open_ = [one.sweep.name for one in found if not one.is_finished]
    console.print()
    if not open_:
        console.print(f"The study is finished: {plural(len(found), 'sweep')}.")
        return 0
    if why:
        console.print(f"No further trial starts: {why}. The same command goes on.")
    kept = sorted(name for name, is_kept in left_alone.items() if is_kept)
    failed = sorted(left_alone.keys() - kept)
    if kept:
        console.print(f"No trial fits into what is left of the budget: {', '.join(kept)}.")
    if failed:
        names = ", ".join(failed)
        console.print(f"Left after trials that did not finish: {names}. The same command goes on.")
    return 1 if failed else 0
