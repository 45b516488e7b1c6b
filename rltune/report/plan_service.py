"""What a plan will ask of a training service, as text: calls, tokens and their cost."""

from collections.abc import Iterator, Mapping, Sequence

from rltune.forecast.cost import Measured, TrialCost
from rltune.report.render import quantity
from rltune.store.prices import Price
from rltune.store.service_usage import ServiceUsage, money
from rltune.types import TrialSpec

Row = tuple[str, str, str]


def service_rows(
    specs: Sequence[TrialSpec],
    costs: Sequence[TrialCost],
    measured: Measured | None,
    prices: Mapping[str, Price | None],
) -> Iterator[Row]:
    """Yield what all trials ask of their training service; nothing where torch trains."""
    if all(spec.config["trainer"]["backend"] == "torch" for spec in specs):
        return
    most = [cost.service for cost in costs if cost.service is not None]
    known = [cost.expected for cost in costs if cost.expected is not None]
    if len(most) == len(costs):
        yield from _usage_rows(sum(most, ServiceUsage()), "at most: every context full")
    else:
        yield "service calls", "unknown", "the environment has no limit of turns"
    if known and measured is not None:
        usage = sum(known, ServiceUsage())
        note = f"by {quantity(measured.steps)} steps in {measured.source}"
        if len(known) < len(costs):
            note += f"; {len(costs) - len(known)} trials were not measured"
        yield from _usage_rows(usage, note)
    yield from _price_rows(prices)


def _usage_rows(usage: ServiceUsage, note: str) -> Iterator[Row]:
    read = usage.prompt_tokens + usage.forward_tokens
    yield "service calls", quantity(usage.requests), note
    yield "  prefill tokens", quantity(read), "of prompts and forward passes"
    yield "  sampled tokens", quantity(usage.sampled_tokens), ""
    yield "  trained tokens", quantity(usage.trained_tokens), "of forward and backward passes"
    if usage.paid:
        yield "  cost", money(usage.paid), ""


def _price_rows(prices: Mapping[str, Price | None]) -> Iterator[Row]:
    """Yield where the prices come from."""
    named = {(one.file, one.date, one.source) for one in prices.values() if one is not None}
    for file, date, source in sorted(named):
        yield "prices", "", f"{file}: of {date}, {source}"
    if None in prices.values():
        yield "cost", "unknown", "name a price file in trainer.prices"


def plan_money(cost: TrialCost) -> str:
    """Return what a trial will cost: by an earlier run, else at most."""
    if cost.expected is not None and cost.expected.paid:
        return money(cost.expected.paid)
    return f"<= {money(cost.service.paid)}" if cost.service and cost.service.paid else "-"
