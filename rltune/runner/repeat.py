"""Run a published trial again, from its config and provenance alone, without its run folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltune.errors import Problem, StoreError
from rltune.lineage.record import finite
from rltune.runner.folder import freeze_all
from rltune.runner.single import Source, run_single, spec_to_repeat
from rltune.runner.software import Change, changes_since, software_now
from rltune.spec.schema.sweep import Metric
from rltune.store.provenance import read_provenance
from rltune.store.rundir import RunDir
from rltune.types import TrialSpec, TrialStatus


@dataclass(frozen=True, slots=True)
class Published:
    """What is known of a trial that is to be run again."""

    spec: TrialSpec  # with its whole config
    provenance: dict[str, Any]  # what it ran on
    metrics_sha256: str  # over its metrics without clocks and rates
    final: float | None  # the sweep's metric at its last gate
    metric: Metric  # the held-out metric that decides
    weights_sha256: str = ""  # of the checkpoint that its gate chose; empty where not recorded


@dataclass(frozen=True, slots=True)
class Repeated:
    """How it came out."""

    status: TrialStatus  # how it ended
    is_equal: bool  # whether every metric but clocks and rates has the same bits
    final: float | None  # the sweep's metric at its last gate
    changes: tuple[Change, ...]  # of software, hardware and inputs since
    has_other_weights: bool = False  # whether its gate chose other weights than are published

    @property
    def deciding(self) -> tuple[Change, ...]:
        """The changes that a result may depend on."""
        return tuple(change for change in self.changes if change.decides)


def repeat(published: Published, run: RunDir, *, argv: tuple[str, ...], base: Path) -> Repeated:
    """Run a published trial in a run folder of its own, and compare.

    Args:
        published: The trial.
        run: Folder to run it in; it is made.
        argv: The command line, for the records.
        base: Folder to which relative paths in the config refer.

    Raises:
        StoreError: Its held-out tasks come out otherwise here, or it has no digest to compare.

    """
    spec, before = published.spec, published.provenance
    if not published.metrics_sha256:
        what = "it has no result, so there is nothing to compare with."
        raise StoreError(Problem(spec.trial_id, what, action="Choose another trial."))
    run.create()
    frozen = freeze_all(run, [spec], base=base)[spec.trial_id]
    if frozen.sha256 != before.get("manifest_sha256"):
        what = f"its tasks come out as {frozen.sha256[:12]} here, not {_short(before)}."
        action = "Use the code, packages and data that its provenance names."
        raise StoreError(Problem(spec.trial_id, what, action=action))
    trial = run.new_rerun(spec.trial_id)
    source = Source(run, trial, spec, spec.config, before, published.metric)
    changes = changes_since(before, software_now(before, base))
    again = spec_to_repeat(spec, spec.config, source=spec.trial_id)
    status = run_single(source, trial, again, argv=argv, base=base)
    if status.is_finished:
        changes = changes_since(before, read_provenance(trial))
    result = trial.read_done()
    return Repeated(
        status,
        result is not None and result.metrics_sha256 == published.metrics_sha256,
        finite(result.final_metric) if result is not None else None,
        changes,
        result is not None
        and bool(published.weights_sha256)
        and result.weights_sha256 != published.weights_sha256,
    )


def _short(before: dict[str, Any]) -> str:
    return str(before.get("manifest_sha256", ""))[:12] or "known"
