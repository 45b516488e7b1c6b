"""A7: two conditions whose trials were one run to the end, since nothing ever told them apart."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from rltune.comparability.findings import Finding, warning
from rltune.comparability.records import TrialRecord

_REMEDY = (
    "Find why the knob never acted (a threshold that nothing reached, a bound that nothing met) "
    "and choose values that do, or report the two as one condition."
)


def same_runs(records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield A7: conditions whose trials were equal in all steps of all shared seeds.

    Their tokens, gradients and gates were: the last gate tells whether the last update was, too. S6
    compares gradients on a probe, before the run; this is what the trials did. Trials that are
    still running tell nothing, since a schedule may part them later.
    """
    runs: dict[str, dict[int, object]] = {}
    for record in records:
        if record.result and record.learned:
            runs.setdefault(record.spec.condition, {})[record.spec.seed] = (
                record.learned,
                record.heldout,
            )
    for first, second in combinations(runs, 2):
        seeds = sorted(runs[first].keys() & runs[second].keys())
        if seeds and all(runs[first][seed] == runs[second][seed] for seed in seeds):
            named = ", ".join(str(seed) for seed in seeds)
            message = (
                f"{first} and {second} were one run under two names: they sampled the same tokens "
                f"and had the same gradients in every step (seeds {named})."
            )
            yield warning("A7", message, _REMEDY, conditions=(first, second))


def one_runs(found: Iterable[Finding]) -> list[tuple[str, ...]]:
    """Return the pairs of conditions that A7 found."""
    return [finding.conditions for finding in found if finding.rule == "A7"]
