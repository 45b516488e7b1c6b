"""A8 of the history of a run: no trial was removed, run again or added once results were known.

What the lineage table and the ledger recorded when it happened is compared with what is here now.
"""

from collections.abc import Iterator, Mapping, Sequence

from rltune.comparability.audit_text import few
from rltune.comparability.findings import SEEDS_FOR_A_CLAIM, Finding, error, warning
from rltune.comparability.records import TrialRecord
from rltune.lineage.read import read_if_there
from rltune.lineage.record import FINISHED, BestGate, best_gate, recorded_gate
from rltune.lineage.row import LineageRow
from rltune.store.ledger import Ledger, LedgerEvent
from rltune.store.proof import read_proof
from rltune.store.run_folder import SweepFolder
from rltune.store.rundir import RunDir
from rltune.types import RowStatus, TrialSpec


def history_findings(folder: SweepFolder, records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield A8: what was decided about trials after their results were known."""
    rows = _rows(folder)
    yield from _removed(rows, records)
    yield from _run_again(rows, records)
    yield from _proved_later(folder.run, rows)
    if folder.until is None:
        yield from _seeds_added(folder.run, [record.spec for record in records])


def _rows(folder: SweepFolder) -> list[LineageRow]:
    """Return the rows of the sweep's own trials that ended with a result, in their order."""
    read = read_if_there(folder.run.results)
    rows = read.rows if read is not None else ()
    return [row for row in rows if row.is_of_sweep and row.trial_id and row.status in FINISHED]


def _removed(rows: Sequence[LineageRow], records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield trials that ended with a result and are not among the trials any more."""
    there = {record.spec.trial_id for record in records}
    gone = list(dict.fromkeys(_named(row) for row in rows if row.trial_id not in there))
    if gone:
        message = (
            f"results.tsv has results of {few(gone)}, and these trials are gone: what is left may "
            "be a selection."
        )
        remedy = "Restore their folders, or run their seeds again."
        yield error("A8", message, remedy)


def _named(row: LineageRow) -> str:
    return f"{row.condition}@{row.seed}"


def _run_again(rows: Sequence[LineageRow], records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield trials that have another result than one that was recorded of them before."""
    now = {
        record.spec.trial_id: best_gate(record.result)
        for record in records
        if record.result is not None
    }
    texts = [
        f"{_named(row)} (recorded {_text(recorded)}, now {_text(found)})"
        for row in rows
        if (found := now.get(row.trial_id)) and found != (recorded := recorded_gate(row))
    ]
    if texts:
        message = f"trials have another best gate than one that was recorded of them: {few(texts)}."
        remedy = "State in every figure why they were run again after their result was known."
        yield warning("A8.run_again", message, remedy)


def _text(gate: BestGate) -> str:
    metric, step = gate
    return f"{'none' if metric is None else f'{metric:.4g}'} at step {step}"


def _proved_later(run: RunDir, rows: Sequence[LineageRow]) -> Iterator[Finding]:
    """Yield trials that ran although the proof failed, where the proof that is here holds."""
    if not read_proof(run).get("ok", False):
        return
    names = [_named(row) for row in rows if row.status is RowStatus.DISQUALIFIED]
    if names:
        message = (
            f"results.tsv disqualifies {few(names)}, which ran although the check failed; the "
            "proof that is here was made later."
        )
        remedy = "Run the sweep in another --runs-dir, or state with every figure what changed."
        yield warning("A8.proved_later", message, remedy)


def _seeds_added(run: RunDir, specs: Sequence[TrialSpec]) -> Iterator[Finding]:
    """Yield seeds that were planned when those before them had given a verdict already."""
    known = {spec.trial_id: spec for spec in specs}
    planned: dict[int, str] = {}  # seed -> when the first of its trials was
    ended: dict[str, str] = {}  # trial -> when it first had a result
    for entry in Ledger(run.ledger).entries():
        spec = known.get(entry.trial_id)
        if spec is not None and entry.event is LedgerEvent.PLANNED:
            planned.setdefault(spec.seed, entry.time)
        elif spec is not None and entry.event is LedgerEvent.DONE:
            ended.setdefault(entry.trial_id, entry.time)
    before = {seed: _pairs_by(time, specs, ended) for seed, time in planned.items()}
    late = sorted(seed for seed, count in before.items() if count >= SEEDS_FOR_A_CLAIM)
    if late:
        names = f"seed{'s' * (len(late) > 1)} {', '.join(map(str, late))}"
        message = (
            f"{names} {'were' if len(late) > 1 else 'was'} planned when "
            f"{min(before[seed] for seed in late)} seeds had given a verdict: p values and "
            "intervals are those of a number of seeds that was fixed before."
        )
        remedy = (
            "State in every figure why seeds were added; `--until decided` pays for looking at "
            "results in between."
        )
        yield warning("A8.seeds_added", message, remedy)


def _pairs_by(time: str, specs: Sequence[TrialSpec], ended: Mapping[str, str]) -> int:
    """Return how many seeds of a condition had ended beside the control's, at most, by a time."""
    done: dict[str, set[int]] = {}
    for spec in specs:
        if spec.trial_id in ended and ended[spec.trial_id] <= time:
            done.setdefault("" if spec.is_control else spec.condition, set()).add(spec.seed)
    control = done.pop("", set())
    return max((len(seeds & control) for seeds in done.values()), default=0)
