"""Counts what a trial asks of a training service, and keeps the sum in the trial's folder."""

import time
from collections import Counter
from pathlib import Path

from rltune.store.prices import Price
from rltune.store.service_usage import ServiceUsage, read_usage, write_usage

TOKENS = ("prompt_tokens", "sampled_tokens", "forward_tokens", "trained_tokens")
_WRITTEN_EVERY_S = 5.0  # a kill forgets so much at most


class Meter:
    """Calls, tokens and their cost: of now, for a row of metrics, and of all attempts.

    Args:
        file: Where the sum is kept; None keeps none.
        price: What the service charges; None counts calls and tokens alone.

    """

    def __init__(self, file: Path | None = None, price: Price | None = None) -> None:
        self.price = price
        self._file = file
        self._row: Counter[str] = Counter()
        self._total = read_usage(file) if file is not None else ServiceUsage()
        self._written = time.monotonic()

    @property
    def total(self) -> ServiceUsage:
        """What all attempts asked for."""
        return self._total

    def count(self, **amounts: int) -> None:
        """Add requests and tokens."""
        self._row.update(amounts)
        tokens = {name: amounts.get(name, 0) for name in TOKENS}
        paid = {} if self.price is None else {self.price.currency: self.price.of(**tokens)}
        requests = amounts.get("requests", 0)
        unpriced = requests if self.price is None else 0
        self._total += ServiceUsage(requests=requests, unpriced=unpriced, paid=paid, **tokens)
        if time.monotonic() - self._written > _WRITTEN_EVERY_S:
            self.save()

    def take_row(self) -> dict[str, float]:
        """Return what was asked for since the last time, as metrics, and begin again."""
        row = {f"tinker/{name}": float(self._row[name]) for name in ("requests", *TOKENS)}
        if self.price is not None:
            row["tinker/cost"] = self.price.of(**{name: self._row[name] for name in TOKENS})
        self._row.clear()
        self.save()
        return row

    def save(self) -> None:
        """Write the sum into its file."""
        self._written = time.monotonic()
        if self._file is not None:
            write_usage(self._file, self._total)
