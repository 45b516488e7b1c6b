"""Prove that a sweep's conditions differ in its axis alone, by their keys and their gradients.

One proof for `rltune sweep`, `rltune next` and `rltune check --deep`. Gradients are compared in a
process of its own (`rltune.trainer.probe.run`), so that a check of keys alone imports no torch.
"""

import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rltune.comparability.check import check_sweep, report_of
from rltune.comparability.distinct import moves_selection, pairs_to_probe
from rltune.comparability.findings import ComparabilityReport, Finding
from rltune.comparability.functional import findings_of, probe_failed
from rltune.errors import ConfoundedError, Problem
from rltune.interpreter import module_command, module_environment
from rltune.spec.load import LoadedSweep
from rltune.trainer.preflight.few_rows import few_rows
from rltune.trainer.preflight.references import require_usable

PROBE = "rltune.trainer.probe.run"
HANGS_AFTER_S = 1800.0
"""A probe takes seconds; a custom estimator that never returns must not hang a check."""

_LAST_WORDS = 500  # characters


def prove(loaded: LoadedSweep, base: Path) -> ComparabilityReport:
    """Return what S1 to S9 find in a sweep, S6 by keys and by gradients.

    Args:
        loaded: The sweep.
        base: Folder to which import paths refer.

    """
    report = prove_by_keys(loaded, base)
    probed = probe_conditions({c.label: c.config for c in loaded.conditions}, base)
    return _with(loaded, report, probed)


def prove_by_keys(loaded: LoadedSweep, base: Path) -> ComparabilityReport:
    """Return what S1 to S9 find in a sweep by its keys, and by the rows of its files."""
    return _with(loaded, check_sweep(loaded), tuple(few_rows(loaded, base)))


def _with(
    loaded: LoadedSweep, report: ComparabilityReport, more: Sequence[Finding]
) -> ComparabilityReport:
    return report_of(loaded, (*report.errors, *report.warnings, *more)) if more else report


def probe_conditions(configs: Mapping[str, Mapping[str, Any]], base: Path) -> tuple[Finding, ...]:
    """Return what S6 finds in the gradients of conditions; no process runs if keys are enough."""
    pairs = pairs_to_probe(configs)
    if not pairs:
        return ()
    names = dict.fromkeys(label for pair in pairs for label in pair)
    request = {
        "base": str(base),
        "conditions": {label: configs[label] for label in names},
        "pairs": pairs,
        "selections": [(a, b) for a, b in pairs if moves_selection(configs[a], configs[b])],
    }
    with tempfile.TemporaryDirectory(prefix="rltune-probe-") as folder:
        return _ask(request, Path(folder))


def _ask(request: Mapping[str, Any], folder: Path) -> tuple[Finding, ...]:
    asked, answered = folder / "request.json", folder / "answer.json"
    asked.write_text(json.dumps(request), encoding="utf-8")
    try:
        ended = subprocess.run(
            module_command(PROBE, str(asked), str(answered)),
            cwd=request["base"],
            env=module_environment(CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1"),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=HANGS_AFTER_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return (probe_failed(f"it did not end within {HANGS_AFTER_S:g} s."),)
    if not answered.is_file():
        lines = ended.stderr.strip()[-_LAST_WORDS:].splitlines()
        last = lines[-1].strip() if lines else f"its process ended with code {ended.returncode}"
        return (probe_failed(f"{last.rstrip('.')}."),)
    return findings_of(json.loads(answered.read_text(encoding="utf-8")))


def require_proven(
    loaded: LoadedSweep,
    base: Path,
    *,
    allow_confounded: str | None,
    no_custom_code: bool = False,
    show: Callable[[ComparabilityReport], None] = lambda report: None,
) -> ComparabilityReport:
    """Return the proof of a sweep whose files and import paths can be used.

    Args:
        loaded: The sweep.
        base: Folder to which relative paths and import paths refer.
        allow_confounded: Reason for running although the proof fails; None refuses that.
        no_custom_code: Whether to refuse custom code.
        show: Called with the proof before it may be refused.

    Raises:
        SpecError: A file or an import path in a config cannot be used.
        ConfoundedError: The proof fails, and no reason is given.

    """
    require_usable(loaded, base, no_custom_code=no_custom_code)
    report = prove(loaded, base)
    show(report)
    require_comparable(loaded, report, allow_confounded)
    return report


def require_comparable(
    loaded: LoadedSweep, report: ComparabilityReport, allow_confounded: str | None
) -> None:
    """Refuse a sweep whose proof fails.

    Raises:
        ConfoundedError: It fails, and no reason for running all the same is given.

    """
    if report.ok or (allow_confounded or "").strip():
        return
    raise ConfoundedError(
        [
            Problem(
                str(loaded.path), f"{item.code or item.rule}: {item.message}", action=item.remedy
            )
            for item in report.errors
        ]
    )
