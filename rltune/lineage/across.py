"""The chain of a row over several sweeps: a sweep may start from a trial of another one."""

from dataclasses import replace
from pathlib import Path

from rltune.lineage.query import COMPARED, ELIGIBLE, Chain
from rltune.lineage.row import LineageRow, is_foreign
from rltune.lineage.share import shared_id
from rltune.lineage.table import LineageStore, rows_in


def chain_across(store: LineageStore, exp_id: str) -> Chain:
    """Walk the parents of a row, on into the tables of the runs beside this one.

    Rows of another run have ids that name it: `kl-2ae5c1e9/kl_loss_coef=0.01-s0-1514878a44`.

    Raises:
        StoreError: No row has this id, or a header is damaged.

    """
    chain, walked = store.chain(exp_id), list[str]()
    while is_foreign(chain.missing) and chain.missing not in walked:
        walked.append(chain.missing)
        run, _, name = chain.missing.partition("/")
        table = store.path.resolve().parent.parent / run / store.path.name
        if (before := _chain_of(table, name)) is None:
            break
        *ancestors, last = before.rows
        is_kept = last.status in ELIGIBLE
        chain = Chain(
            rows=(*_named(run, ancestors), *_named(run, [last] * is_kept), *chain.rows),
            skipped=(
                *_named(run, before.skipped),
                *_named(run, [last] * (not is_kept)),
                *chain.skipped,
            ),
            missing=_whole(run, before.missing),
            cycle=before.cycle,
        )
    if chain.missing in walked and is_foreign(chain.missing):
        around = (*walked[walked.index(chain.missing) :], chain.missing)
        return replace(chain, missing="", cycle=around) if len(walked) > 1 else chain
    return chain


def parent_row(runs_dir: Path, parent: str, seed: int | None) -> str:
    """Return the row that a sweep's `parent` means for a seed, as `RUN/EXP_ID`.

    Args:
        runs_dir: Folder of the run folders.
        parent: `RUN/EXP_ID`, or `RUN/CONDITION`: the row of this seed, else the condition's first.
        seed: Of the trial; None: the condition's first row, whatever its seed.

    Returns:
        `parent` itself where the row is not there (yet): the chain then names it as missing.

    """
    run, _, name = parent.partition("/")
    table = runs_dir / run / "results.tsv"
    rows = rows_in(table)
    if any(row.exp_id == name for row in rows):
        return parent
    ended = [row for row in rows if row.condition == name and row.status in COMPARED]
    kept = [row for row in ended if row.is_of_sweep]
    same = [row for row in kept if row.seed == seed and seed is not None]
    return shared_id(run, (same or kept)[0].exp_id) if kept else parent


def _chain_of(table: Path, name: str) -> Chain | None:
    """Return the chain of a row in another table; None where table or row is missing."""
    if not table.is_file():
        return None
    store = LineageStore.open(table)
    known = {row.exp_id for row in store.read().rows}
    return store.chain(name) if name in known else None


def _whole(run: str, exp_id: str) -> str:
    return exp_id if is_foreign(exp_id) else shared_id(run, exp_id)


def _named(run: str, rows: "list[LineageRow] | tuple[LineageRow, ...]") -> list[LineageRow]:
    return [replace(row, exp_id=_whole(run, row.exp_id)) for row in rows]
