"""A5 of the gates' own records: heldout.jsonl gives the metrics, and the metric is the sweep's."""

import math
from collections.abc import Iterator, Sequence
from statistics import fmean

from rltune.comparability.audit_text import few
from rltune.comparability.findings import Finding, error
from rltune.comparability.records import TrialRecord
from rltune.comparability.scored import is_same_mean, scored_in
from rltune.lineage.noise import scores_of

_RESTORE = "Restore the files, or delete these trials and run them again."


def gate_findings(metric: str, records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield A5: gates whose tasks give another value of the sweep's metric than was recorded."""
    other = [r.spec.trial_id for r in records if any(_contradictions(r, metric))]
    if other:
        message = f"the tasks of heldout.jsonl do not give the {metric} of metrics.jsonl: "
        yield error("A5", f"{message}{few(other)}.", _RESTORE)
    claimed = [r.spec.trial_id for r in records if _claims_other(r, metric)]
    if claimed:
        yield error("A5", f"the result of {few(claimed)} is not its last {metric}.", _RESTORE)
    yield from _undigested(records)


def _contradictions(record: TrialRecord, metric: str) -> Iterator[int]:
    """Yield the steps of gates whose tasks give another mean than metrics.jsonl has."""
    recorded = {row["step"]: row[metric] for row in record.metrics if metric in row}
    for gate in record.heldout:
        value, step = recorded.get(gate["step"]), gate["step"]
        if not isinstance(value, int | float) or scored_in(gate).is_lost:
            continue
        known = [score for score in scores_of(gate, metric) or () if score is not None]
        if known and math.isfinite(value) and not is_same_mean(fmean(known), value):
            yield step


def _claims_other(record: TrialRecord, metric: str) -> bool:
    """Tell whether a result is another number than its metric has at the last step."""
    if record.result is None or not math.isfinite(record.result.final_metric):
        return False
    last = [row.get(metric) for row in record.metrics if row["step"] == record.last_step]
    return any(
        isinstance(value, int | float) and not is_same_mean(value, record.result.final_metric)
        for value in last
    )


def _undigested(records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield results without a digest of their metrics, beside others that have one."""
    ended = [r for r in records if r.result is not None]
    without = [r.spec.trial_id for r in ended if r.result and not r.result.metrics_sha256]
    if without and len(without) < len(ended):
        message = f"the DONE marker of {few(without)} has no metrics_sha256, and the others have: "
        yield error("A5", f"{message}nothing shows that metrics.jsonl is as it was.", _RESTORE)
