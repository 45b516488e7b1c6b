"""`rltune check`: comparability before a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rltune.cli.console import emit_json, show, warn
from rltune.cli.options import Json, NoCustomCode, Overrides, Profile, Seeds, parse_seeds
from rltune.comparability.findings import ComparabilityReport
from rltune.errors import Problem, SpecError
from rltune.report.render_check import check_json, proof_view, protocol_view, unprobed
from rltune.runner.proof import prove, prove_by_keys
from rltune.spec.load import LoadedSweep, load_sweep
from rltune.spec.schema.sweep import sweep_json_schema
from rltune.trainer.preflight.models import engine_problem
from rltune.trainer.preflight.references import require_usable


def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE...", help="Sweep files; several are also checked against each other (S9)."
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
      rltune check --schema > sweep.schema.json

    """
    if schema:
        emit_json(sweep_json_schema())
        return
    if not files:
        raise SpecError("check: no sweep file was given. Example: `rltune check sweeps/kl.yaml`.")
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
    sweeps: Sequence[LoadedSweep], reports: Sequence[ComparabilityReport], *, deep: bool
) -> None:
    for i, (sweep, report) in enumerate(zip(sweeps, reports, strict=True)):
        if i:
            show("")
        show(proof_view(sweep, report))
        if not deep and (hint := unprobed(sweep)):
            show(hint)
        if missing := engine_problem(sweep):
            warn(f"{missing} A sweep would be refused here.")
    if len(sweeps) > 1:
        show("")
        show(protocol_view(sweeps))
