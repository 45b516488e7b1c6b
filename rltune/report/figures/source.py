"""The exported tables and what manifest.json says of their sweep: all that a figure comes from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rltune.analysis.audit import Audit
from rltune.analysis.tables import HistoryRow, Row, SummaryRow, TrialRow
from rltune.errors import Problem, StoreError
from rltune.report.figures.records import IQM, MEAN
from rltune.report.table_files import read_csv, read_parquet
from rltune.store.files import read_json
from rltune.store.proof import open_warnings
from rltune.store.run_folder import SweepFolder

READ = ("trials", "history", "summary")
"""The tables that figures come from."""

ESTIMATORS = (MEAN, IQM)
AGAIN = "Export the run folder again."

FORM = 3
"""Form of the words of figures and pages; a finding keeps the one that it was drawn in.

1: pages do not say what seeds that separated nothing could show. 2: figures name each condition
with other policy updates by itself, cut warnings at a word, and draw no level that conditions do
not share; pages do not say that intervals are unadjusted, nor that a sign is not separable.
"""
_UPDATES = ("A3", "A3.ends")  # codes of warnings that one sentence says for all conditions
R = TypeVar("R", bound=Row)


@dataclass(frozen=True, slots=True)
class About:
    """What manifest.json says of a sweep."""

    title: str  # of the sweep
    verdict: str  # of the audit
    failed_rules: tuple[str, ...]  # rules in which the audit found an error
    confounded: str  # why it ran although more than the axis differs; empty when only that does
    warnings: tuple[str, ...]  # of the audit, each with its rule, but for those of updates
    # hidden second axes that the sweep neither remedied nor accepted
    open_warnings: tuple[str, ...]
    planned: int  # trials of the sweep
    finished: int  # those with a result
    estimator: str  # over seeds, in the figures: `mean` or `iqm`
    has_other_updates: bool = False  # A3: some condition made more or fewer policy updates
    form: int = FORM  # of the words


@dataclass(frozen=True, slots=True)
class Tables:
    """One export, read back."""

    about: About  # of the sweep
    trials: tuple[TrialRow, ...]  # one row a planned trial, in the order of the plan
    history: tuple[HistoryRow, ...]  # every number of every trial
    summary: tuple[SummaryRow, ...]  # estimates, differences and tests over seeds


def trials_by_condition(trials: Iterable[TrialRow]) -> dict[str, list[TrialRow]]:
    """Return label of a condition -> its trials, in the order of the plan."""
    groups: dict[str, list[TrialRow]] = {}
    for row in trials:
        groups.setdefault(row.condition, []).append(row)
    return groups


def about_of(manifest: Mapping[str, Any], *, form: int = FORM) -> About:
    """Return what a manifest says of its sweep, for figures of a form.

    Raises:
        KeyError: It is the manifest of another version.

    """
    audit = manifest["audit"]
    found = [
        (str(one.get("code") or one["rule"]), f"{one['rule']} warning: {one['message']}")
        for one in audit["warnings"]
    ]
    warnings, has_other_updates = _without_updates(found)
    return About(
        title=str(manifest["title"] or manifest["sweep"]),
        verdict=str(audit["verdict"]),
        failed_rules=tuple(sorted({str(item["rule"]) for item in audit["errors"]})),
        confounded=str(audit["confounded"] or ""),
        warnings=warnings if form >= 3 else tuple(text for _, text in found),
        open_warnings=tuple(map(str, manifest["open_warnings"])),
        planned=int(manifest["trials"]["planned"]),
        finished=int(manifest["trials"]["finished"]),
        estimator=str(manifest["statistics"]["estimator"]),
        has_other_updates=has_other_updates and form >= 3,
        form=form,
    )


def _without_updates(found: Iterable[tuple[str, str]]) -> tuple[tuple[str, ...], bool]:
    """Return the texts of an audit's warnings (code, text), and whether any is of updates.

    Those are left out: one sentence says them for all conditions.
    """
    pairs = list(found)
    texts = tuple(text for code, text in pairs if code not in _UPDATES)
    return texts, len(texts) < len(pairs)


def about_folder(folder: SweepFolder, audit: Audit, *, estimator: str = MEAN) -> About:
    """Return the same of a run folder, as the manifest of its export will say it."""
    warnings, has_other_updates = _without_updates(
        (i.code, f"{i.rule} warning: {i.message}") for i in audit.report.warnings
    )
    return About(
        title=folder.title or folder.name,
        verdict=audit.verdict.value,
        failed_rules=tuple(sorted({item.rule for item in audit.report.errors})),
        confounded=audit.confounded,
        warnings=warnings,
        open_warnings=open_warnings(folder.run),
        planned=audit.trials,
        finished=audit.finished,
        estimator=estimator,
        has_other_updates=has_other_updates,
    )


def read_about(folder: Path) -> About:
    """Return what the manifest of an export says of its sweep.

    Raises:
        StoreError: There is no manifest, or it is another version's.

    """
    path = folder / "manifest.json"
    if not path.is_file():
        what = "there is no manifest.json here."
        action = "Give the folder that `rltune export` wrote: <run folder>/figures."
        raise StoreError(Problem(str(folder), what, action=action))
    try:
        return about_of(read_json(path))
    except (KeyError, TypeError, ValueError) as error:
        what = f"is not the manifest of this version of rltune ({error!r})."
        raise StoreError(Problem(str(path), what, action=AGAIN)) from error


def read_tables(folder: Path, about: About, *, kind: str = "csv") -> Tables:
    """Return the tables of an export.

    `kind` is `csv` or `parquet`; both give the same.

    Raises:
        StoreError: A table is missing, or is another version's.

    """
    return Tables(
        about,
        tuple(_rows(folder, "trials", TrialRow, kind)),
        tuple(_rows(folder, "history", HistoryRow, kind)),
        tuple(_rows(folder, "summary", SummaryRow, kind)),
    )


def _rows(folder: Path, name: str, row: type[R], kind: str) -> Iterable[R]:
    path = folder / f"{name}.{kind}"
    if not path.is_file():
        raise StoreError(Problem(str(path), "is missing.", action=AGAIN))
    if kind == "csv":
        return read_csv(path, row)
    return read_parquet(path, row)
