"""The spread of paired differences, from earlier runs: what a plan of seeds starts from.

A run folder is read at the last gate of each trial, which verdicts are about. A lineage table has
the metric at the gate's choice.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import stdev

from rltune.analysis.ends import End, end_of
from rltune.analysis.rates import resolution_of
from rltune.comparability.audit_same_run import same_runs
from rltune.comparability.records import TrialRecord
from rltune.errors import InputError, Problem, StoreError
from rltune.lineage.query import COMPARED
from rltune.lineage.row import LineageRow
from rltune.lineage.table import LineageStore
from rltune.maths.spread import Spread, paired_spread
from rltune.spec.identity import identity_view
from rltune.spec.load import LoadedSweep
from rltune.store.run_folder import find_run, is_run_folder, read_folder, read_records
from rltune.store.rundir import RunDir
from rltune.types import RowStatus, TrialSpec


@dataclass(frozen=True, slots=True)
class PilotRow:
    """One condition of a pilot beside its control.

    Attributes:
        run: Run folder, or the sweep and run that a table names.
        condition: Its label.
        pairs: Seeds that it and the control have.
        spread: Standard deviation of its differences; None with fewer than two pairs.

    """

    run: str
    condition: str
    pairs: int
    spread: float | None


@dataclass(frozen=True, slots=True)
class Pilot:
    """What earlier runs say about the spread of a sweep.

    Attributes:
        spread: Of all of them together; None where they say nothing.
        rows: The conditions that it was computed from.
        gate: Which gate of each trial: `last gate` or `gate's choice`.
        differs: Config keys in which a control is not the planned one; None where a table does
            not say.
        advice: What to do where nothing is known; else empty.

    """

    spread: Spread | None
    rows: tuple[PilotRow, ...] = ()
    gate: str = "last gate"
    differs: tuple[str, ...] | None = ()
    advice: str = ""


@dataclass(frozen=True, slots=True)
class _Run:
    name: str
    control: str
    block: dict[tuple[str, int], float]
    differs: tuple[str, ...] = ()


def read_pilot(given: Path, loaded: LoadedSweep) -> Pilot:
    """Return the spread that a run folder, or a lineage table, says.

    Args:
        given: Run folder of any sweep, or results.tsv. Of a table with rows of this sweep only
            those count, else all of them.
        loaded: The sweep that is planned.

    Raises:
        InputError: It measures another metric, or no two conditions share two seeds.
        StoreError: It cannot be read.

    """
    if given.is_file():
        runs, gate = _of_table(given, loaded), "gate's choice"
        differs = None
    else:
        runs, gate = [_of_folder(find_run(given, given.parent), loaded)], "last gate"
        differs = runs[0].differs
    spread = _spread(runs, loaded)
    if spread is None:
        what = "no two of its conditions share two seeds that ended"
        what += " (those that were one run count once), so it has no spread."
        raise InputError(Problem("--pilot", f"{given}: {what}", action=_advice(loaded)))
    return Pilot(spread, _rows(runs), gate, differs)


def find_pilot(loaded: LoadedSweep, runs_dir: Path) -> Pilot:
    """Return what the runs of this sweep say whose control is the planned one, seed aside."""
    runs = list(_earlier(loaded, runs_dir))
    same = [run for run in runs if not run.differs]
    if spread := _spread(same, loaded):
        return Pilot(spread, _rows(same))
    usable = [run for run in runs if _spread([run], loaded)]
    if not usable:
        return Pilot(None, advice=_advice(loaded))
    nearest = min(usable, key=lambda run: len(run.differs))
    advice = f"A run of this sweep differs in {_listed(nearest.differs)}. If its spread will do: "
    return Pilot(None, advice=f"{advice}--pilot {nearest.name}. {_advice(loaded)}")


def _advice(loaded: LoadedSweep) -> str:
    words = ["rltune", "sweep", str(loaded.path)]
    if loaded.profile != loaded.spec.profiles.default:
        words += ["--profile", loaded.profile]
    for text in loaded.overrides:  # without them it would be the pilot of another config
        words += ["--set", text]
    one = shlex.join([*words, "--seeds", "0,1,2"])
    return f"Run a pilot, `{one}`, or give a run or a lineage table of the same metric: --pilot."


def _listed(keys: Sequence[str]) -> str:
    shown = ", ".join(keys[:3])
    return shown if len(keys) <= 3 else f"{shown} and {len(keys) - 3} more keys"


def _earlier(loaded: LoadedSweep, runs_dir: Path) -> Iterator[_Run]:
    """Yield the readable runs of a sweep and its metric; a plan must not fail on an old one."""
    for path in sorted(runs_dir.glob(f"{loaded.spec.name}-????????")):
        try:
            if is_run_folder(path):
                yield _of_folder(RunDir(path), loaded)
        except InputError:
            continue


def _of_folder(run: RunDir, loaded: LoadedSweep) -> _Run:
    folder = read_folder(run)
    _require_metric(str(run.path), folder.metric_name, loaded)
    ends = [end_of(record) for record in told_apart(read_records(folder).records)]
    control = next((spec for spec in folder.specs if spec.is_control), None)
    if control is None:
        raise StoreError(Problem(str(run.path), "it has no planned trial.", action="Give another."))
    return _Run(str(run.path), control.condition, block_of(ends), _differs(control, loaded))


def told_apart(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Return the records without conditions that were one run with another one, the control first.

    Between two names of one run nothing spreads, which says nothing of how far runs do.
    """
    control = next((one.spec.condition for one in records if one.spec.is_control), "")
    again = second_names((finding.conditions for finding in same_runs(records)), control)
    return [record for record in records if record.spec.condition not in again]


def second_names(pairs: Iterable[Sequence[str]], control: str) -> set[str]:
    """Return of each pair of conditions that were one run the second name, never the control's."""
    return {first if second == control else second for first, second in pairs}


def block_of(ends: Sequence[End]) -> dict[tuple[str, int], float]:
    """Return (condition, seed) -> the last gate of the trials that took every planned step."""
    whole = [end for end in ends if not end.is_short]
    return {(end.condition, end.seed): end.value for end in whole if end.value is not None}


def _differs(control: TrialSpec, loaded: LoadedSweep) -> tuple[str, ...]:
    """Return the keys of the identity, without the seed, in which two controls differ."""
    ours, theirs = identity_view(loaded.control.config), identity_view(control.config)
    keys = [*ours, *(key for key in theirs if key not in ours)]
    return tuple(key for key in keys if key != "seed" and ours.get(key) != theirs.get(key))


def _of_table(path: Path, loaded: LoadedSweep) -> list[_Run]:
    """Return the runs of a lineage table: those of this sweep, else all."""
    store = LineageStore.open(path)
    _require_metric(str(path), store.metric_name, loaded)
    rows = [row for row in store.read().rows if row.status in COMPARED]
    own = [row for row in rows if row.sweep == loaded.spec.name]
    groups: dict[str, list[LineageRow]] = {}
    for row in own or rows:
        run = row.exp_id.rpartition("/")[0]
        groups.setdefault(run or row.sweep, []).append(row)
    return [_of_rows(f"{path}: {name}" if name else str(path), g) for name, g in groups.items()]


def _of_rows(name: str, rows: Sequence[LineageRow]) -> _Run:
    """Return one run; of several attempts at a trial the last counts."""
    control = next((row.condition for row in rows if row.status is RowStatus.BASELINE), "")
    block = {
        (row.condition, row.seed): row.core_metric
        for row in rows
        if row.seed is not None and row.core_metric is not None
    }
    return _Run(name, control, block)


def _require_metric(source: str, name: str, loaded: LoadedSweep) -> None:
    planned = loaded.spec.metric.name
    if name != planned:
        what = f"{source} measures {name!r}, and the sweep {planned!r}."
        raise InputError(Problem("--pilot", what, action="Give one of the same metric."))


def _spread(runs: Sequence[_Run], loaded: LoadedSweep) -> Spread | None:
    tasks = int(loaded.control.config["gate"]["tasks"])
    step = resolution_of(loaded.spec.metric.name, tasks=tasks)
    return paired_spread([run.block for run in runs], resolution=step)


def _rows(runs: Sequence[_Run]) -> tuple[PilotRow, ...]:
    return tuple(row for run in runs for row in _of_run(run))


def _of_run(run: _Run) -> Iterator[PilotRow]:
    for condition in dict.fromkeys(label for label, _ in run.block):
        if condition == run.control:
            continue
        d = [
            value - run.block[run.control, seed]
            for (label, seed), value in run.block.items()
            if label == condition and (run.control, seed) in run.block
        ]
        yield PilotRow(run.name, condition, len(d), stdev(d) if len(d) > 1 else None)
