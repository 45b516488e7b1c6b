"""manifest.json of an export: what was read, what was written, by what, and what stands against it.

It names no time: the same files, command and software give the same bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from rltune.analysis.audit import Audit
from rltune.analysis.table_summary import CONFIDENCE
from rltune.analysis.tables import mark_of
from rltune.maths.resample import REPS, RNG_SEED
from rltune.store.files import sha256_file, to_json
from rltune.store.proof import open_warnings
from rltune.store.run_folder import RecordsRead, SweepFolder
from rltune.store.rundir import RunDir

FORMAT = "rltune-export-1"
_PACKAGES = ("numpy", "scipy", "pyarrow", "matplotlib")


@dataclass(frozen=True, slots=True)
class Code:
    """What exports."""

    command: Sequence[str]  # its arguments, secrets masked
    versions: Mapping[str, str]  # of Python and the packages that trials depend on
    commit: str  # of rltune; `-dirty` where it differs from it
    source_sha256: str  # digest of rltune's Python files


def input_files(folder: SweepFolder) -> list[Path]:
    """Return every file that the tables come from, in a fixed order. Children and reruns do not."""
    run = folder.run
    files = [run.sweep, run.plan, run.comparability, run.results, run.looks, run.ledger]
    files += sorted(run.path.glob("tasks*.json"))
    for spec in folder.specs:
        trial = run.trial(spec.trial_id)
        files += [trial.spec, trial.provenance, trial.metrics, trial.heldout]
        files += [trial.done, trial.failed]
    return [path for path in files if path.is_file()]


def digests(run: RunDir, files: Sequence[Path]) -> list[dict[str, Any]]:
    """Return path, size and digest of each file."""
    return [
        {
            "path": path.relative_to(run.path).as_posix(),
            "bytes": path.stat().st_size,
            "sha256": sha256_file(path),
        }
        for path in files
    ]


def manifest(
    folder: SweepFolder,
    read: RecordsRead,
    audit: Audit,
    code: Code,
    *,
    inputs: Sequence[Mapping[str, Any]],
    estimator: str,
) -> dict[str, Any]:
    """Return the content of manifest.json but `outputs`, which come last."""
    return {
        "format": FORMAT,
        "sweep": folder.name,
        "title": folder.title,
        "run": folder.run.path.resolve().name,
        "command": list(code.command),
        "rltune": {"commit": code.commit, "source_sha256": code.source_sha256},
        "versions": {**code.versions, **_versions()},
        "mark": mark_of(audit),
        "audit": {
            "verdict": audit.verdict.value,
            "confounded": audit.confounded or None,
            "errors": to_json(audit.report.errors),
            "warnings": to_json(audit.report.warnings),
        },
        "open_warnings": list(open_warnings(folder.run)),
        "trials": {"planned": audit.trials, "finished": audit.finished},
        "not_in_summary": _left_out(read),
        "unreadable": [str(problem) for problem in read.problems],
        "statistics": {
            "ci_level": CONFIDENCE,
            "reps": REPS,
            "rng_seed": RNG_SEED,
            "estimator": estimator,
        },
        "inputs": list(inputs),
    }


def _versions() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _left_out(read: RecordsRead) -> list[dict[str, str]]:
    """Return the trials without a result, and why: their ends are in no mean."""
    return [
        {
            "trial_id": record.spec.trial_id,
            "why": str((record.failure or {}).get("reason") or "no result yet"),
        }
        for record in read.records
        if record.result is None
    ]
