"""`rltune check`: comparability before a run."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rltune.cli.console import emit_json, show, warn
from rltune.cli.options import RUNS, Json, NoCustomCode, Overrides, Profile, Seeds, parse_seeds
from rltune.comparability.findings import ComparabilityReport
from rltune.errors import Problem, SpecError
from rltune.report.render_check import check_json, proof_view, protocol_view, unprobed
from rltune.runner.proof import prove, prove_by_keys
from rltune.spec.load import LoadedSweep, load_sweep
from rltune.spec.schema.sweep import sweep_json_schema
from rltune.spec.trial_reference import RUNS_VARIABLE
from rltune.study.across import findings_across
from rltune.study.load import is_study, load_study
from rltune.study.records import read_proposals, with_proposals
from rltune.study.state import standings, used
from rltune.study.view import study_json, study_view
from rltune.trainer.preflight.models import engine_problem
from rltune.trainer.preflight.references import require_usable


def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE...",
            help="Sweep files; several are also checked against each other (S9). Or a study file.",
        ),
    ] = None,
    profile: Profile = None,
    overrides: Overrides = None,
    seeds: Seeds = None,
    no_custom_code: NoCustomCode = False,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="Also compare the conditions' gradients on fixed batches (S6; takes seconds).",
        ),
    ] = False,
    as_json: Json = False,
    schema: Annotated[
        bool,
        typer.Option("--schema", help="Print the JSON schema of sweep files, for use in editors."),
    ] = False,
) -> None:
    """Prove before a run that only one knob changes. Exit code 2 if more than one does.

    Example:
      rltune check sweeps/kl.yaml
      rltune check sweeps/kl.yaml sweeps/entropy.yaml sweeps/rv_filter.yaml
      rltune check studies/nights.yaml
      rltune check --schema > sweep.schema.json

    """
    if schema:
        emit_json(sweep_json_schema())
        return
    if not files:
        raise SpecError("check: no sweep file was given. Example: `rltune check sweeps/kl.yaml`.")
    if len(files) == 1 and is_study(files[0]):
        _require_bare(profile, seeds, overrides)
        is_ok = _check_study(files[0], deep=deep, no_custom_code=no_custom_code, as_json=as_json)
        raise typer.Exit(0 if is_ok else 2)
    sweeps = _load_all(
        files,
        profile=profile,
        overrides=overrides or (),
        seeds=parse_seeds(seeds),
        no_custom_code=no_custom_code,
    )
    reports = [_prove(sweep, deep=deep) for sweep in sweeps]
    data = check_json(sweeps, reports)
    if as_json:
        emit_json(data)
    else:
        _show_all(sweeps, reports, deep=deep)
    raise typer.Exit(0 if data["ok"] else 2)


def _require_bare(profile: str | None, seeds: str | None, overrides: list[str] | None) -> None:
    for option, value in {"--profile": profile, "--seeds": seeds, "--set": overrides}.items():
        if value:
            raise SpecError(Problem(option, "a study sets it.", action="Write it there."))


def _check_study(path: Path, *, deep: bool, no_custom_code: bool, as_json: bool) -> bool:
    """Show where a study stands, what is promoted, and the proof of each sweep as it would run.

    Returns:
        Whether there is no error.

    """
    study = load_study(path)
    runs_dir = Path(os.environ.get(RUNS_VARIABLE) or RUNS)
    study = with_proposals(study, runs_dir)
    with tempfile.TemporaryDirectory() as work:  # a check leaves the runs dir as it is
        found = standings(study, runs_dir, work=Path(work))
        sweeps = [one.loaded for one in found]
        for sweep in sweeps:
            require_usable(sweep, Path.cwd(), no_custom_code=no_custom_code)
        reports = [_prove(sweep, deep=deep) for sweep in sweeps]
        total = used(found)
        data = check_json(sweeps, reports, findings_across(study, found))
        if as_json:
            records = read_proposals(study, runs_dir)
            emit_json({**data, "study": study_json(study, found, total, records)})
        else:
            show(study_view(study, found, total))
            show("")
            _show_all(sweeps, reports, deep=deep, across=False)
    return bool(data["ok"])


def _load_all(
    files: Sequence[Path],
    *,
    profile: str | None,
    overrides: Sequence[str],
    seeds: Sequence[int] | None,
    no_custom_code: bool,
) -> list[LoadedSweep]:
    """Return all sweeps, or raise with the problems of all of them."""
    sweeps: list[LoadedSweep] = []
    problems: list[Problem] = []
    for file in files:
        try:
            sweep = load_sweep(file, profile=profile, overrides=overrides, seeds=seeds)
            require_usable(sweep, Path.cwd(), no_custom_code=no_custom_code)
            sweeps.append(sweep)
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))
    return sweeps


def _prove(sweep: LoadedSweep, *, deep: bool) -> ComparabilityReport:
    return (prove if deep else prove_by_keys)(sweep, Path.cwd())


def _show_all(
    sweeps: Sequence[LoadedSweep],
    reports: Sequence[ComparabilityReport],
    *,
    deep: bool,
    across: bool = True,
) -> None:
    for i, (sweep, report) in enumerate(zip(sweeps, reports, strict=True)):
        if i:
            show("")
        show(proof_view(sweep, report))
        if not deep and (hint := unprobed(sweep)):
            show(hint)
        if missing := engine_problem(sweep):
            warn(f"{missing} A sweep would be refused here.")
    if across and len(sweeps) > 1:
        show("")
        show(protocol_view(sweeps))
