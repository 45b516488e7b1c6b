"""A6: whether all conditions learned from rollouts of one age."""

from collections.abc import Iterator, Sequence

from rltune.comparability.audit_text import by_value, few, sides
from rltune.comparability.findings import Finding, error, warning
from rltune.comparability.records import TrialRecord

STALENESS = "rollout/staleness"


def same_staleness(records: Sequence[TrialRecord]) -> Iterator[Finding]:
    """Yield A6: rollouts of another age than the config asks for, and ages that the axis moves.

    With `rollout.ahead: n` a step learns from the policy of n steps before, the first steps from
    that of the start. A step without a record had new ones.
    """
    wrong = [(found[0], record.spec.trial_id) for record in records if (found := _wrong(record))]
    if wrong:
        message = (
            f"{STALENESS} is not what rollout.ahead asks for, from step {min(wrong)[0]} on, in "
            f"{few([name for _, name in wrong])}: they learned from rollouts of another age."
        )
        yield error("A6", message, "Delete these trials and run them again.")
    asked = by_value((record.spec.trial_id, _ahead(record)) for record in records)
    if len(asked) > 1:
        message = f"rollouts are not of one age: rollout.ahead is {sides(asked)}."
        yield warning(
            "A6",
            message,
            "Give all conditions one rollout.ahead; or say with every figure that the age of "
            "rollouts is the intervention.",
        )


def _ahead(record: TrialRecord) -> int:
    return int(record.spec.config["rollout"].get("ahead", 0))  # old configs name none


def _wrong(record: TrialRecord) -> list[int]:
    """Return the training steps whose rollouts had another age than was asked for."""
    ahead = _ahead(record)
    return [
        row["step"]
        for row in record.metrics
        if row["step"] > 0 and row.get(STALENESS, 0) != min(ahead, row["step"] - 1)
    ]
