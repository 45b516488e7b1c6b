"""`seeds` of a sweep file: a list, or seeds until decided."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from rltune.spec.errors import Violation, refuse
from rltune.spec.schema.base import PositiveFloat, PositiveInt, Section, tuple_from_list
from rltune.types import SeedPlan

LISTED, UNTIL_DECIDED = "listed seeds", "seeds until decided"
FORMS = (LISTED, UNTIL_DECIDED)
"""Names of the two forms, which stand in pydantic's locations and in no file."""

MOST_SEEDS = 100
DEFAULT_MOST = 12
FEWEST = 3


def refuse_repeats(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse an empty or repetitive list. Not min_length: it also counts what is invalid."""
    if not items:
        refuse([Violation("", "[] is empty.", "Give at least one.")])
    repeated = [item for item in dict.fromkeys(items) if items.count(item) > 1]
    refuse([Violation("", f"{item} is given twice.", "Remove the duplicate.") for item in repeated])
    return items


class UntilDecided(Section):
    """Seeds in blocks, until each condition is decided; see docs/until-decided.md."""

    start: Annotated[int, Field(ge=FEWEST, le=MOST_SEEDS)] = Field(
        FEWEST, description="Seeds of the first block: no look before. Seeds are 0, 1, 2, ..."
    )
    max: Annotated[int, Field(ge=FEWEST, le=MOST_SEEDS)] = Field(
        DEFAULT_MOST, description="Most seeds of a condition; the last look is at these."
    )
    until: Literal["decided"] = Field(description="`decided`: what ends a condition.")
    effect: PositiveFloat | None = Field(
        None,
        description="Smallest difference of interest, in the metric's unit: conditions that differ "
        "by less are practically equal. null: none is, and they run to max.",
    )
    block: PositiveInt = Field(1, description="Seeds that are added from look to look.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.max < self.start:
            what = f"{self.max} is below start, {self.start}."
            refuse([Violation("max", what, "Give at least as many as start.")])
        return self

    @property
    def plan(self) -> SeedPlan:
        """The same as a record."""
        return SeedPlan(self.start, self.max, self.block, self.effect or 0.0)


def _form(value: object) -> str:
    return UNTIL_DECIDED if isinstance(value, dict | UntilDecided) else LISTED


_Listed = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=2**31)], ...],
    AfterValidator(refuse_repeats),
    BeforeValidator(tuple_from_list),
]
Seeds = Annotated[
    Annotated[_Listed, Tag(LISTED)] | Annotated[UntilDecided, Tag(UNTIL_DECIDED)],
    Discriminator(_form),
]
