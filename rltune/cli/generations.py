"""`rltune lineage generations`: a model over its generations, as a chart and a table."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rltune.analysis.fresh import FORMAT, FRESH, read_fresh, split_seed_of
from rltune.analysis.generations import START, generation_table
from rltune.cli.console import emit_json, show, warn
from rltune.cli.lineage import Row, Source, best_id, table_path
from rltune.cli.options import RUNS, Json, NoCustomCode, RunsDir, why_not_writable
from rltune.errors import InputError, Problem, StoreError
from rltune.lineage.generations import Generation, Generations, generations
from rltune.lineage.table import LineageStore
from rltune.report.generations import CHARTS, generations_view, write_generations
from rltune.report.render import short_path
from rltune.runner.machine import short_temporary_folder
from rltune.runner.process import prepare_for
from rltune.spec.custom_code import import_paths, refuse_paths
from rltune.spec.trial_reference import looking_in
from rltune.store.files import utc_now, write_json_atomic
from rltune.store.inputs import within
from rltune.store.provenance import base_of_trial, read_provenance
from rltune.store.rundir import TrialDir
from rltune.trainer.custom_env import naming_custom_env

if TYPE_CHECKING:
    from rltune.trainer.final_test import TestJob

Fresh = Annotated[
    int | None,
    typer.Option(
        "--fresh",
        metavar="N",
        min=1,
        help="Play N tasks that no generation trained or was chosen on, with every generation.",
    ),
]


def show_generations(
    source: Source = None,
    of: Row = None,
    fresh: Fresh = None,
    again: Annotated[
        bool, typer.Option("--again", help="Play fresh tasks again (each time is counted).")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Folder of the chart (default: RUN/generations/EXP_ID)."
        ),
    ] = None,
    runs_dir: RunsDir = RUNS,
    no_custom_code: NoCustomCode = False,
    as_json: Json = False,
) -> None:
    """Chart a model over its generations, each beside the one before on the same tasks.

    A generation departs from the trial whose model it starts from, else from its row's parent.
    Held-out numbers are those of the gates, which chose each checkpoint; --fresh plays tasks that
    played no part in any training or choice.

    Example:
      rltune lineage generations
      rltune lineage generations runs/kl-55b4c751 --of kl_loss_coef=0.01-s0 --fresh 256

    """
    table = table_path(source, runs_dir)
    found = generations(table, of or best_id(LineageStore.open(table)), runs_dir)
    youngest = found.chain[-1]
    run = youngest.trial.path.parents[1]
    own = run / CHARTS / youngest.row.exp_id
    folder = out or own
    if again and fresh is None:
        what = "fresh tasks are played again, and only --fresh says how many."
        raise InputError(Problem("--again", what, action="Add --fresh N."))
    _require_writable(folder, *([own] if fresh is not None else []))
    record = read_fresh(own / FRESH, found, again=again)
    if fresh is not None and (record is None or again):
        record = _played(found, fresh, no_custom_code=no_custom_code)
        before = read_fresh(own / FRESH, found, again=True)  # another one may have played, too
        record["looks"] = (before["looks"] if before else 0) + 1
        own.mkdir(parents=True, exist_ok=True)  # wherever the chart goes: each look is counted
        write_json_atomic(own / FRESH, record)
    elif fresh is not None and record is not None and len(record["tasks"]) != fresh:
        what = f"{len(record['tasks'])} fresh tasks were played, not {fresh}."
        raise StoreError(Problem(str(own), what, action="Add --again: each time is counted."))
    made = generation_table(found, record)
    written = write_generations(folder, made)
    if as_json:
        emit_json(made)
    else:
        show(generations_view(made))
        typer.echo("\n".join(f"wrote {short_path(path)}" for path in written))


def _require_writable(*folders: Path) -> None:
    """Refuse folders that cannot be written, before fresh tasks are played that nothing counts.

    Raises:
        InputError: One cannot.

    """
    for folder in folders:
        if why := why_not_writable(folder):
            action = "Let it be written, or give another --out."
            raise InputError(Problem(str(folder), f"{why}.", action=action))


def _played(found: Generations, n: int, *, no_custom_code: bool) -> dict[str, Any]:
    """Return what every generation did on fresh tasks: the record but for its looks."""
    youngest = found.chain[-1]
    config = prepare_for(youngest.trial)  # before torch is imported
    if no_custom_code:
        refuse_paths(path for one in found.chain for path in _custom_code(one.trial))

    from rltune.trainer.models.fresh import fresh_tasks, play_generation
    from rltune.trainer.tasks import env_maker

    split_seed = split_seed_of(youngest.name)
    with _at(youngest.trial):
        make_env = env_maker(config.env, config.reward, base_of_trial(youngest.trial))
        known = _known(found)
        tasks = fresh_tasks(make_env, n, split_seed=split_seed, known=known)
    steps: list[tuple[str, Generation, int | None]] = [(START, found.chain[0], None)]
    steps += [(one.name, one, one.step) for one in found.chain]
    rows = []
    for name, one, step in steps:
        warn(f"{name}: playing {n} fresh tasks")
        with _at(one.trial):
            job = _job(one.trial)
            rows.append(
                play_generation(job, step, tasks, name=name, config=config, make_env=make_env)
            )
    return {
        "format": FORMAT,
        "youngest": youngest.name,
        "time": utc_now(),
        "split_seed": split_seed,
        "excluded": len(known),
        "tasks": [task.task_id for task in tasks],
        "generations": rows,
    }


def _known(found: Generations) -> set[str]:
    """Return the content hashes of all tasks of the generations."""
    from rltune.trainer.final_test import read_manifest
    from rltune.trainer.models.fresh import known_contents

    trials = [one.trial for one in found.chain]
    return known_contents(read_manifest(one.path.parents[1], _manifest_of(one)) for one in trials)


def _job(trial: TrialDir) -> "TestJob":
    from rltune.cli.final_test import test_job

    return test_job(TrialDir(trial.path.absolute()), prepare_for(trial), base_of_trial(trial))


@contextmanager
def _at(trial: TrialDir) -> Iterator[None]:
    """Work where a trial's relative paths lead, with its references."""
    config = prepare_for(trial)
    with (
        naming_custom_env(config.env),
        within(base_of_trial(trial)),
        looking_in(trial.path.absolute()),
        short_temporary_folder(),
    ):
        yield


def _manifest_of(trial: TrialDir) -> str:
    return str(read_provenance(trial).get("manifest_sha256", ""))


def _custom_code(trial: TrialDir) -> Iterator[tuple[str, str]]:
    paths = import_paths(prepare_for(trial).model_dump())
    return ((f"{trial.config}: {key}", path) for key, path in paths)
