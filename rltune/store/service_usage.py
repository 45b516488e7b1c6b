"""What a trial asked of a training service so far: its own file, which no resume cuts back."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from rltune.errors import InputError
from rltune.store.files import read_json, write_json_atomic
from rltune.store.markers import require_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceUsage:
    """Calls and tokens, and what they cost where a price file was given."""

    requests: int = 0  # answers that were waited for
    prompt_tokens: int = 0  # sent as prompts
    sampled_tokens: int = 0  # sampled
    forward_tokens: int = 0  # in forward passes alone
    trained_tokens: int = 0  # in forward and backward passes
    unpriced: int = 0  # of the requests, those made without a price file
    paid: Mapping[str, float] = field(default_factory=dict)  # currency -> what the others cost

    def __add__(self, other: "ServiceUsage") -> "ServiceUsage":
        """Return what both asked for; amounts of one currency are added."""
        counts = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        currencies = dict.fromkeys((*self.paid, *other.paid))
        paid = {name: self.paid.get(name, 0.0) + other.paid.get(name, 0.0) for name in currencies}
        return ServiceUsage(**counts, paid=paid)

    @property
    def text(self) -> str:
        """The calls and their cost in words; empty when nothing was asked."""
        if not self.requests:
            return ""
        calls = f"{self.requests:,} service calls"
        if not self.paid:
            return calls
        left_out = f" ({self.unpriced:,} of them without a price)" if self.unpriced else ""
        return f"{calls}{left_out}, {money(self.paid)}"


_COUNTS = tuple(one.name for one in fields(ServiceUsage) if one.name != "paid")


def money(paid: Mapping[str, float]) -> str:
    """Return amounts as `12.30 USD`: two decimals, or more where three digits need more."""
    amounts = (f"{_amount(value)} {currency}" for currency, value in paid.items())
    return " and ".join(amounts)


def _amount(value: float) -> str:
    three = float(f"{value:.3g}")  # 0.9999 is 1.00, as 1 is
    exponent = math.floor(math.log10(abs(three))) if three else 0
    return f"{value:,.{max(2, 2 - exponent)}f}"


def read_usage(path: Path) -> ServiceUsage:
    """Return what a trial's file says; nothing asked where there is none.

    Raises:
        StoreError: The file is broken: what was paid would be forgotten.

    """
    if not path.exists():
        return ServiceUsage()
    return ServiceUsage(**require_fields(read_json(path), ServiceUsage, path))


def known_usage(path: Path) -> ServiceUsage:
    """Return the same for a view, which shows nothing where the file cannot be read."""
    try:
        return read_usage(path)
    except (InputError, TypeError):
        return ServiceUsage()


def write_usage(path: Path, usage: ServiceUsage) -> None:
    """Write a trial's file anew."""
    write_json_atomic(path, usage)
