"""A model over its generations: each trial of a chain, and the trial that it departs from.

A generation departs from the trial whose model it starts from; a trial that starts from a model of
nobody departs from its row's parent, whose settings it changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rltune.errors import InputError, Problem, StoreError
from rltune.lineage.query import find_id
from rltune.lineage.row import LineageRow, is_foreign, resolve_alias
from rltune.lineage.share import shared_id
from rltune.lineage.table import LineageStore, rows_in
from rltune.spec.trial_reference import (
    Checkpoint,
    checkpoint_of,
    is_reference,
    looking_in,
    recorded_checkpoint,
)
from rltune.store.origin import read_origin
from rltune.store.provenance import base_of_trial
from rltune.store.rundir import RunDir, TrialDir


@dataclass(frozen=True, slots=True)
class Generation:
    """One trial of the chain.

    Attributes:
        name: Its row, as `RUN/EXP_ID`.
        row: The same as a record.
        trial: Its folder.
        step: The checkpoint that counts: the one that the next generation starts from, else the
            gate's choice.
        has_model_of_parent: Whether it starts from the model of the generation before; else it
            departs from its settings.

    """

    name: str
    row: LineageRow
    trial: TrialDir
    step: int
    has_model_of_parent: bool = False


@dataclass(frozen=True, slots=True)
class Generations:
    """The chain, root first, and the parent that is named and cannot be found; empty for none."""

    chain: tuple[Generation, ...]
    missing: str = ""


def generations(
    table: Path, exp_id: str, runs_dir: Path, *, bundled: Sequence[Path] = ()
) -> Generations:
    """Walk from a row to the root, on into the runs beside its own.

    Args:
        table: results.tsv of a run folder or of a study, or another table that sweeps share.
        exp_id: The youngest generation: a row's id, or the start of it.
        runs_dir: Where the run folder of a row of a shared table is, unless it is beside the
            folder of the table.
        bundled: Runs dirs of a bundle: other runs are looked for there alone, by the names of their
            folders, and the steps of checkpoints come from results.

    Raises:
        StoreError: No row has this id, its trial's folder is not beside the table, it has no
            result, or the chain is a circle.

    """
    rows = LineageStore.open(table).read().rows
    name = find_id(dict.fromkeys(row.exp_id for row in rows), exp_id)
    youngest = _youngest(table.resolve(), _by_id(rows)[name], runs_dir)
    if youngest is None:
        what = f"{name!r} has no trial with a result in its run folder."
        action = "Give a finished row, and --runs-dir where the table is not beside the runs."
        raise StoreError(Problem(str(table), what, action=action))
    chain = [youngest]
    while True:
        older, has_model, missing = _parent(chain[0], bundled)
        chain[0] = replace(chain[0], has_model_of_parent=has_model)
        if older is None:
            return Generations(tuple(chain), missing)
        if older.name in {one.name for one in chain}:
            what = f"the chain is circular: it comes back to {older.name!r}."
            raise StoreError(Problem(str(table), what, action="Repair the table."))
        chain.insert(0, older)


def _youngest(table: Path, row: LineageRow, runs_dir: Path) -> Generation | None:
    """Return the generation of a row; of a shared table that of the row that it is a copy of."""
    if not is_foreign(row.exp_id):
        return _generation(table.parent, row)
    run, _, name = row.exp_id.rpartition("/")
    for runs in (table.parent.parent, runs_dir):
        if (own := _by_id(_rows(runs / run)).get(name)) is not None:
            return _generation((runs / run).resolve(), own)
    return None


def _parent(child: Generation, bundled: Sequence[Path]) -> tuple[Generation | None, bool, str]:
    """Return what a generation departs from, whether with its model, and its name if not found."""
    run = child.trial.path.parents[1]
    try:
        start = _start_of(child.trial, bundled)
    except InputError as error:
        return None, True, str(error)
    if start is not None:
        found = _of_trial(start)
        return found, True, "" if found else str(start.trial)
    named = child.row.parent_exp
    if not named:
        return None, False, ""
    folder, _, name = named.rpartition("/") if is_foreign(named) else ("", "", named)
    places = [place / Path(folder).name for place in bundled] or [run.parent / folder]
    places = places if folder else [run]
    beside = next((one for one in places if one.is_dir()), places[0])
    rows = _by_id(_rows(beside))
    row = rows.get(resolve_alias(name, rows))
    found = _generation(beside, row) if row else None
    return found, False, "" if found else named


def _start_of(trial: TrialDir, bundled: Sequence[Path]) -> Checkpoint | None:
    """Return the checkpoint of a trial whose model another one starts from.

    Raises:
        InputError: It is named and cannot be found.

    """
    run = trial.path.parents[1]
    origin = read_origin(trial)
    if origin is not None and origin.step is not None:
        return Checkpoint((run / origin.folder).resolve(), run, origin.step)
    policy: Mapping[str, Any] = trial.read_spec().config["policy"]
    for name in (policy["lora"]["init"], policy["model"]):
        if name and is_reference(name) and bundled:
            return recorded_checkpoint(name, bundled, "policy.model")
        if name and is_reference(name):
            with looking_in(trial.path):
                return checkpoint_of(name, base_of_trial(trial), "policy.model")
    return None


def _of_trial(start: Checkpoint) -> Generation | None:
    """Return the generation of a checkpoint that a model starts from."""
    rows = [row for row in _rows(start.run) if row.trial_id == start.trial.name]
    found = _generation(start.run, rows[-1]) if rows else None
    return found and replace(found, step=start.step)


def _generation(run: Path, row: LineageRow) -> Generation | None:
    """Return the generation of a row; None where its trial is not there, or chose nothing."""
    folder = RunDir(run)
    trials = (folder.trial(row.trial_id), folder.child(row.trial_id)) if row.trial_id else ()
    trial = next((one for one in trials if one.spec.is_file()), None)
    if trial is None or row.best_step is None:
        return None
    return Generation(shared_id(run.name, row.exp_id), row, trial, row.best_step)


def _rows(run: Path) -> Sequence[LineageRow]:
    return rows_in(RunDir(run).results)


def _by_id(rows: Sequence[LineageRow]) -> dict[str, LineageRow]:
    """Return id -> row; of duplicates the first counts."""
    return {row.exp_id: row for row in reversed(rows)}
