"""The price file of a sweep, and a `--budget` in its currency, looked at before anything starts."""

from collections.abc import Iterator
from pathlib import Path

from rltune.errors import InputError, Problem
from rltune.spec.load import LoadedSweep
from rltune.spec.model_name import service_model
from rltune.store.prices import Price, price_of


def price_problems(loaded: LoadedSweep, base: Path) -> Iterator[Problem]:
    """Yield why a price file cannot be used; one that nothing reads is not looked at."""
    try:
        prices_of(loaded, base)
    except InputError as error:
        yield from error.problems


def prices_of(loaded: LoadedSweep, base: Path) -> dict[str, Price | None]:
    """Return condition -> the prices of its base model, of those that a service trains.

    Raises:
        InputError: A price file cannot be used.

    """
    configs = {one.label: one.config for one in loaded.conditions}
    return {
        label: price_of(
            config["trainer"]["prices"],
            service_model(config["policy"]["model"], config["env"]["kind"]),
            base,
            loaded.where("trainer.prices"),
        )
        for label, config in configs.items()
        if config["trainer"]["backend"] == "tinker"
    }


def require_countable(loaded: LoadedSweep, currency: str, base: Path) -> None:
    """Refuse a budget of requests or money that nothing counts.

    Args:
        loaded: The sweep.
        currency: Of the budget; empty for one of requests alone.
        base: Folder that a price file is relative to.

    Raises:
        InputError: No trial is trained by a service, or there are no prices in the currency.

    """
    prices = prices_of(loaded, base)
    if not prices:
        what = "requests and money are those of a training service, and trainer.backend is torch."
        raise InputError(Problem("--budget", what, "Give a time, such as 8h."))
    if not currency:
        return
    for price in prices.values():
        if price is None:
            what = f"{currency} cannot be counted: there are no prices."
            action = "Name a price file: --set trainer.prices=FILE."
            raise InputError(Problem("--budget", what, action=action))
        if price.currency != currency:
            what = f"the prices in {price.file} are in {price.currency}, not in {currency}."
            raise InputError(Problem("--budget", what, f"Give an amount in {price.currency}."))
