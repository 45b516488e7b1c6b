"""What is due next in a study. Pure: names and states in, a name out."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from rltune.store.service_usage import money
from rltune.study.schema import StudySweep


@dataclass(frozen=True, slots=True)
class Used:
    """What the trials of a study have used."""

    seconds: float  # that they ran
    tokens: int  # that they generated
    paid: Mapping[str, float] = field(default_factory=dict)  # currency -> to a training service


@dataclass(frozen=True, slots=True)
class Limits:
    """What they may use; None without a limit."""

    seconds: float | None = None
    tokens: int | None = None
    amount: float | None = None  # of money
    currency: str = ""  # of the amount

    @property
    def is_any(self) -> bool:
        """Whether there is a limit."""
        return any(one is not None for one in (self.seconds, self.tokens, self.amount))


def due(
    sweeps: Sequence[StudySweep], *, finished: Collection[str], left_alone: Collection[str] = ()
) -> StudySweep | None:
    """Return the first sweep that is not finished and whose needs are; None where none is.

    Args:
        sweeps: Those of a study, in its order; each stands below what it needs.
        finished: Names of those of which nothing is left to run.
        left_alone: Names of those that are not run again now: a trial of theirs failed.

    """
    ready = (
        sweep
        for sweep in sweeps
        if sweep.name not in finished
        and sweep.name not in left_alone
        and all(need in finished for need in sweep.needs)
    )
    return next(ready, None)


def beyond(used: Used, limits: Limits) -> str:
    """Return which limit is used up, in words; empty while a trial may start."""
    if limits.seconds is not None and used.seconds >= limits.seconds:
        return f"its trials ran for {used.seconds:,.0f} s of {limits.seconds:,.0f} s"
    if limits.tokens is not None and used.tokens >= limits.tokens:
        return f"its trials generated {used.tokens:,} of {limits.tokens:,} tokens"
    paid = used.paid.get(limits.currency, 0.0)
    if limits.amount is not None and paid >= limits.amount:
        most = money({limits.currency: limits.amount})
        return f"its trials cost {money({limits.currency: paid})} of {most}"
    return ""
