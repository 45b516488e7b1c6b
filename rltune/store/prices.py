"""The price file: what a training service charges for a million tokens. rltune knows no prices."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from rltune.errors import InputError, Problem, SpecError
from rltune.spec.keys import did_you_mean
from rltune.spec.problems import validate
from rltune.spec.schema.base import NonNegativeFloat, Section
from rltune.spec.yamlfile import read_yaml

MILLION = 1_000_000


class ModelPrices(Section):
    """Prices of one base model, for a million tokens each."""

    prefill: NonNegativeFloat = Field(description="Of prompts, and of forward passes alone.")
    sample: NonNegativeFloat = Field(description="Of sampled tokens.")
    train: NonNegativeFloat = Field(description="Of forward and backward passes.")


class PriceFile(Section):
    """The content of a price file."""

    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = Field(
        description="Of every price: three capital letters, such as those of ISO 4217."
    )
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")] = Field(
        description="Day on which they were read, as 2026-01-31."
    )
    source: Annotated[str, Field(min_length=1)] = Field(description="Where they were read.")
    models: dict[str, ModelPrices] = Field(
        min_length=1, description="Name of a base model on the service -> its prices."
    )


@dataclass(frozen=True, slots=True)
class Price:
    """What a service charges for a base model, by a price file of the user."""

    file: str  # as the config names it
    currency: str
    date: str  # day on which the prices were read
    source: str  # where
    prefill: float  # for a million tokens of prompts, and of forward passes alone
    sample: float  # likewise, of sampled tokens
    train: float  # likewise, of forward and backward passes

    def of(
        self,
        *,
        prompt_tokens: float = 0,
        forward_tokens: float = 0,
        sampled_tokens: float = 0,
        trained_tokens: float = 0,
    ) -> float:
        """Return what tokens cost, in the currency."""
        read = (prompt_tokens + forward_tokens) * self.prefill
        return (read + sampled_tokens * self.sample + trained_tokens * self.train) / MILLION


def price_of(file: str | None, model: str, base: Path, where: str) -> Price | None:
    """Return the prices of a base model; None without a price file.

    Args:
        file: `trainer.prices`; a relative path refers to `base`.
        model: Name of the base model on the service.
        base: Folder of the caller.
        where: The key, for an error.

    Raises:
        InputError: The file cannot be read, is no price file, or has no price of the model.

    """
    if file is None:
        return None
    read = read_yaml(base / Path(file).expanduser(), kind="price file")
    if isinstance(read, Problem):
        raise SpecError(Problem(where, f"{read}"))
    problems: list[Problem] = []
    prices: PriceFile | None = validate(PriceFile, read.data, read.locate, problems)
    if prices is None:
        raise SpecError(problems)
    if model not in prices.models:
        what = f"{file} has no price of {model!r}."
        allowed = f"It has those of {', '.join(prices.models)}."
        hint = did_you_mean(model, prices.models)
        raise InputError(Problem(where, what, allowed, hint or "Add it to the file."))
    own = prices.models[model]
    return Price(
        file=file,
        currency=prices.currency,
        date=prices.date,
        source=prices.source,
        prefill=own.prefill,
        sample=own.sample,
        train=own.train,
    )
