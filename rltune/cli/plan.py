"""`rltune plan`: every resolved trial with its cost, and what its seeds can show."""

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group

from rltune.analysis.pilot import find_pilot, read_pilot
from rltune.analysis.power import PowerPlan, design_of, power_plan
from rltune.cli.console import answer
from rltune.cli.options import (
    RUNS,
    Json,
    MaxSeeds,
    NoCustomCode,
    Overrides,
    Profile,
    RunsDir,
    Seeds,
    SweepFile,
    Until,
    parse_seeds,
    with_looks,
)
from rltune.errors import Problem, SpecError
from rltune.forecast.cost import measure
from rltune.report.plan import cost_json, make_plan, plan_view
from rltune.report.plan_power import looks_json, power_json, power_view
from rltune.spec.expand import expand
from rltune.spec.load import LoadedSweep, load_sweep
from rltune.spec.plan import plan_json
from rltune.trainer.preflight.prices import prices_of
from rltune.trainer.preflight.references import require_usable

Power = Annotated[
    bool,
    typer.Option("--power", help="Also show what the seeds can show, and how many are needed."),
]
PilotSource = Annotated[
    Path | None,
    typer.Option(
        "--pilot",
        metavar="RUN|TABLE",
        help="With --power: run folder or lineage table of the same metric, for its spread "
        "(default: earlier runs of the sweep).",
    ),
]
EffectOfInterest = Annotated[
    float | None,
    typer.Option(
        "--effect",
        metavar="X",
        help="With --power or --until: smallest difference of interest, in the metric's unit.",
    ),
]


def plan(
    file: SweepFile,
    profile: Profile = None,
    overrides: Overrides = None,
    seeds: Seeds = None,
    until: Until = None,
    max_seeds: MaxSeeds = None,
    effect: EffectOfInterest = None,
    power: Power = False,
    pilot: PilotSource = None,
    runs_dir: RunsDir = RUNS,
    no_custom_code: NoCustomCode = False,
    as_json: Json = False,
) -> None:
    """Show every trial that `rltune sweep` would run, with its cost in steps, memory and time.

    With --json, print the plan.json that the sweep writes (task digests still null) and each
    trial's cost in bytes and seconds.

    Example:
      rltune plan sweeps/kl.yaml --profile paper
      rltune plan sweeps/kl.yaml --json
      rltune plan sweeps/kl.yaml --power --effect 0.05
      rltune plan sweeps/kl.yaml --power --pilot runs/kl-55b4c751

    """
    loaded = load_sweep(file, profile=profile, overrides=overrides or (), seeds=parse_seeds(seeds))
    if loaded.until is None and until is None and max_seeds is None:  # a list of seeds, no looks
        _require_power(power, effect)
    else:
        loaded = with_looks(loaded, until, max_seeds, effect)
    require_usable(loaded, Path.cwd(), no_custom_code=no_custom_code)
    shown = _power(loaded, power, pilot, effect, runs_dir)
    specs = expand(loaded)
    measured = measure(runs_dir, loaded.run_name, loaded.spec.name)
    planned = make_plan(loaded, specs, measured, prices_of(loaded, Path.cwd()))
    data = {**plan_json(loaded, specs, tasks=None), "cost": cost_json(planned)}
    data |= looks_json(design_of(loaded)) | ({"power": power_json(shown)} if shown else {})
    told = [power_view(shown, loaded)] if shown else []
    answer(data, Group(*told, plan_view(planned)), as_json=as_json)


def _require_power(power: bool, effect: float | None) -> None:
    """Refuse a difference of interest that nothing is asked of.

    Raises:
        SpecError: There is one.

    """
    if effect is not None and not power:
        what = "the seeds are a list, of which only --power asks what they show."
        raise SpecError(Problem("--effect", what, action="Add --power, or --until decided."))


def _power(
    loaded: LoadedSweep, power: bool, pilot: Path | None, effect: float | None, runs_dir: Path
) -> PowerPlan | None:
    """Return what the seeds can show; None where nobody asked.

    Raises:
        SpecError: The options do not fit together, or the effect cannot be used.

    """
    if not power:
        if pilot is not None:
            what = "a pilot says what seeds can show, and only --power asks for that."
            raise SpecError(Problem("--pilot", what, action="Add --power."))
        return None
    if effect is not None and not 0.0 < effect < math.inf:
        what = f"{effect:g} is not a difference of interest."
        raise SpecError(Problem("--effect", what, "Give one above 0, in the metric's unit."))
    known = find_pilot(loaded, runs_dir) if pilot is None else read_pilot(pilot, loaded)
    wanted = loaded.until.effect if effect is None and loaded.until else effect
    return power_plan(design_of(loaded), known, effect=wanted or None)
