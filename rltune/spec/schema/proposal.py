"""What a sweep file says of itself for the lineage; nothing here changes what runs."""

from typing import Annotated

from pydantic import Field

from rltune.spec.schema.base import Section

OneLine = Annotated[str, Field(pattern=r"^[^\t\r\n\x00]*$")]


class Proposed(Section):
    """Who expects what of a sweep, and from which row it departs."""

    hypothesis: OneLine = Field(
        "", description="What is expected and why, in a sentence; part of each lineage row."
    )
    specialist: OneLine = Field(
        "rltune", min_length=1, description="Who proposed the sweep, in each lineage row."
    )
    parent: Annotated[str, Field(pattern=r"^([^/\s]+/[^/\s]+)?$")] = Field(
        "",
        description="Lineage row that the control departs from: RUN/EXP_ID, or RUN/CONDITION for "
        "the row of the same seed; RUN is a run folder beside this sweep's.",
    )
