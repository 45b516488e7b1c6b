"""Rollout filters by their keys, whatever their strategy."""

from typing import Annotated

from pydantic import Field, TypeAdapter

from rltune.spec.schema.rollout import RolloutFilter

_ADAPTER = TypeAdapter(Annotated[RolloutFilter, Field(discriminator="strategy")])


def filter_of(**keys) -> RolloutFilter:
    """Return a filter; top_p where no strategy is named."""
    return _ADAPTER.validate_python({"strategy": "top_p", **keys})
