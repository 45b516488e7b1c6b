"""`env: {kind: verified}`: problems of files or of a generator, and what grades them."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from rltune.spec.env_checks import verified_violations
from rltune.spec.errors import refuse
from rltune.spec.schema.base import FreeMapping, PositiveInt
from rltune.spec.schema.env_base import ShippedConfig
from rltune.spec.schema.env_verifier import Verifier


class VerifiedConfig(ShippedConfig):
    """Problems of a file or a generator, each graded by a verifier."""

    kind: Literal["verified"] = Field("verified", description="Name of the environment.")
    train: str | None = Field(
        None,
        min_length=1,
        description="File of problems, one a row (.jsonl, .json, .csv, .parquet), relative to the "
        "folder that rltune is called in. At most env.train_tasks of them are trained on. Null "
        "with an env.source.",
    )
    source: str | None = Field(
        None,
        pattern=r"^reasoning_gym:\w+$",
        description="What generates problems in place of files: reasoning_gym:NAME, a data set of "
        "the package reasoning-gym.",
    )
    arguments: FreeMapping = Field(
        default_factory=dict,
        description="Keywords of the data set of env.source (JSON values): {max_terms: 3}.",
    )
    heldout: str | None = Field(
        None,
        min_length=1,
        description="The same for held-out problems; null takes a share of env.train.",
    )
    test: str | None = Field(
        None, min_length=1, description="The same for test problems; null: a share of env.train."
    )
    heldout_share: float = Field(
        0.2,
        ge=0.0,
        lt=1.0,
        description="Share of env.train that is held out, by content, where env.heldout is null.",
    )
    test_share: float = Field(
        0.1, ge=0.0, lt=1.0, description="The same for the test, where env.test is null (no unit)."
    )
    template: str = Field(
        "{question}",
        min_length=1,
        description="The prompt, with names of columns in braces; other braces stay as they are.",
    )
    answer_column: str | None = Field(
        "answer",
        min_length=1,
        description="Column of the answers; null where a custom verifier reads the row itself.",
    )
    choices_column: str | None = Field(
        None, min_length=1, description="Column with the list of choices, for multiple_choice."
    )
    id_column: str | None = Field(
        None, min_length=1, description="Column of names that no two rows may share."
    )
    verifier: Verifier = Field(
        description="What grades a response: a name, an import path, or a section with `kind`. "
        "Beside an env.source it is reasoning_gym where none is given."
    )
    max_turns: PositiveInt = Field(1, description="Most model responses in one episode, in turns.")
    feedback: str = Field(
        "That is not right. Try again.",
        description="What the policy reads after a response that is not right, turns permitting.",
    )
    system: str = Field("", description="Text shown once, before the problem.")
    format_penalty: float = Field(
        0.0, le=0.0, description="Reward added to a turn in which no answer can be read."
    )

    @model_validator(mode="before")
    @classmethod
    def _default_verifier(cls, section: Any) -> Any:
        """Add the verifier of a generator where no layer of the config has named one."""
        is_open = isinstance(section, dict) and "verifier" not in section
        if is_open and section.get("source") is not None:
            return {**section, "verifier": {"kind": "reasoning_gym"}}
        return section

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(verified_violations(self))
        return self
