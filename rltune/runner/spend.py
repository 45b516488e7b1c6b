"""What the trials of a sweep may ask of a training service together: `--budget 20USD`."""

from dataclasses import dataclass

from rltune.store.rundir import RunDir
from rltune.store.service_usage import ServiceUsage, known_usage, money


@dataclass(frozen=True, slots=True)
class SpendLimit:
    """The most of a launch's `--budget` besides time. Picklable: each trial looks at it."""

    requests: int | None = None  # calls to the service; None: any number
    amount: float | None = None  # what they may cost; None: whatever they do
    currency: str = ""  # of the amount


def usage_of_run(run: RunDir) -> ServiceUsage:
    """Return what all attempts of a sweep's trials asked for, children and reruns left out."""
    usages = (known_usage(trial.service) for trial in run.trial_dirs())
    return sum(usages, ServiceUsage())


def overspent(run: RunDir, limit: SpendLimit | None) -> str:
    """Return that a limit is reached, as a sentence without its end; empty while none is."""
    if limit is None:
        return ""
    usage = usage_of_run(run)
    if limit.requests is not None and usage.requests >= limit.requests:
        what = f"{usage.requests:,} calls to the service"
        return f"{what} reach the sweep's --budget of {limit.requests:,} requests"
    paid = usage.paid.get(limit.currency, 0.0)
    if limit.amount is not None and paid >= limit.amount:
        whole = money({limit.currency: limit.amount})
        return f"{money({limit.currency: paid})} reach the sweep's --budget of {whole}"
    return ""
