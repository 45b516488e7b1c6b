"""`rltune plan`: every resolved trial with its cost."""

from pathlib import Path

from rltune.cli.console import answer
from rltune.cli.options import (
    RUNS,
    Effect,
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
from rltune.forecast.cost import measure
from rltune.report.plan import cost_json, make_plan, plan_view
from rltune.spec.expand import expand
from rltune.spec.load import load_sweep
from rltune.spec.plan import plan_json
from rltune.trainer.preflight.prices import prices_of
from rltune.trainer.preflight.references import require_usable


def plan(
    file: SweepFile,
    profile: Profile = None,
    overrides: Overrides = None,
    seeds: Seeds = None,
    until: Until = None,
    max_seeds: MaxSeeds = None,
    effect: Effect = None,
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

    """
    loaded = load_sweep(file, profile=profile, overrides=overrides or (), seeds=parse_seeds(seeds))
    loaded = with_looks(loaded, until, max_seeds, effect)
    require_usable(loaded, Path.cwd(), no_custom_code=no_custom_code)
    specs = expand(loaded)
    measured = measure(runs_dir, loaded.run_name, loaded.spec.name)
    planned = make_plan(loaded, specs, measured, prices_of(loaded, Path.cwd()))
    answer(
        {**plan_json(loaded, specs, tasks=None), "cost": cost_json(planned)},
        plan_view(planned),
        as_json=as_json,
    )
