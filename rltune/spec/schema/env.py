"""The env section, one variant a kind: which tasks, how many turns, what a bad answer costs.

What the keys of one section must satisfy together is in `rltune.spec.env_checks`.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from rltune.spec.env_checks import (
    frozen_lake_violations,
    qa_violations,
    require_distinct,
    require_probability,
    sokoban_violations,
)
from rltune.spec.errors import refuse
from rltune.spec.schema.base import FreeMapping, ImportPath, PositiveInt, Section, tuple_from_list
from rltune.spec.schema.env_base import ShippedConfig, TasksConfig
from rltune.spec.schema.env_taskset import TASKSETS, long_taskset
from rltune.spec.schema.env_verified import VerifiedConfig

Observation = Literal["grid", "coord", "grid_coord"]
QuestionFormat = Literal[
    "auto", "hotpotqa", "musique", "2wiki", "bamboogle", "golden_answers", "hotpotqa_fullwiki"
]


class _GridGameConfig(ShippedConfig):
    """Keys that grid games share."""

    min_difficulty: PositiveInt = Field(
        1, description="Least length of a shortest solution, in actions; easier ones are skipped."
    )
    max_turns: PositiveInt = Field(5, description="Most model responses in one episode, in turns.")
    max_actions_per_turn: PositiveInt = Field(
        2, description="Most actions executed from one response, in actions."
    )
    max_actions: PositiveInt = Field(
        10, description="Most actions executed in one episode, in actions; the rest is truncated."
    )
    observation: Observation = Field(
        "grid",
        description="What a natural prompt shows: the grid, the coordinates of things, or both.",
    )


class SokobanConfig(_GridGameConfig):
    """Push every box onto a target."""

    kind: Literal["sokoban"] = Field("sokoban", description="Name of the environment.")
    size: int = Field(
        6, ge=5, le=20, description="Side of the square room, in cells, walls included."
    )
    boxes: int = Field(1, ge=1, le=8, description="Number of boxes and of targets.")
    search_depth: int = Field(
        100, ge=1, le=10_000, description="Backward moves from the solved level; more is harder."
    )
    max_difficulty: PositiveInt | None = Field(
        None,
        description="Greatest length of a shortest solution, in actions; null: env.max_actions.",
    )
    levels: str | None = Field(
        None,
        min_length=1,
        description="File of levels (XSB or Boxoban) to use instead of generated ones, relative to "
        "the folder that rltune is called in; null generates.",
    )
    symbols: Literal["standard", "letters"] = Field(
        "standard", description="Which characters a natural prompt draws the grid with."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(sokoban_violations(self))
        return self


class FrozenLakeConfig(_GridGameConfig):
    """Reach the goal over ice on which a step may slip, and fall into no hole."""

    kind: Literal["frozen_lake"] = Field("frozen_lake", description="Name of the environment.")
    size: int = Field(4, ge=2, le=16, description="Side of the square lake, in cells.")
    frozen_probability: float = Field(
        0.9, gt=0.0, le=1.0, description="Probability that a cell is ice and no hole (no unit)."
    )
    success_rate: Annotated[float, BeforeValidator(require_probability), Field(ge=0.0, le=1.0)] = (
        Field(
            1.0,
            description="Probability that a step goes where it was aimed (no unit); else it slips "
            "to one of the two sides. Written with a point: 1.0 is always.",
        )
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(frozen_lake_violations(self))
        return self


class EvalSetConfig(Section):
    """Questions to be measured on; the path of a file is short for `{file: PATH}`."""

    file: str = Field(
        min_length=1,
        description="File of questions, relative to the folder that rltune is called in.",
    )
    file_format: QuestionFormat = Field("auto", description="Layout of it; auto recognises it.")


def long_eval_set(value: object) -> object:
    """Return the short form of a named set, its file, in full; anything else unchanged."""
    return {"file": value} if isinstance(value, str) else value


class MultihopQaConfig(ShippedConfig):
    """Answer a question whose facts stand in several passages, by searching for them."""

    kind: Literal["multihop_qa"] = Field("multihop_qa", description="Name of the environment.")
    questions: str | None = Field(
        None,
        min_length=1,
        description="File of questions, relative to the folder that rltune is called in; null is "
        "the closed world that ships with rltune.",
    )
    file_format: QuestionFormat = Field(
        "auto", description="Layout of env.questions; auto recognises it."
    )
    eval: dict[str, Annotated[EvalSetConfig, BeforeValidator(long_eval_set)]] = Field(
        default_factory=dict,
        description="Name -> file of questions. The gate and the final test then measure on these "
        "sets, equally many of each, and report EM and F1 of each; env.questions is for training.",
    )
    world_seed: int = Field(
        0, ge=0, lt=2**63, description="Seed (no unit) from which the closed world is invented."
    )
    passages: int = Field(
        3000, ge=100, le=7000, description="Size of the closed world, in passages."
    )
    hops: Annotated[
        tuple[Annotated[int, Field(ge=2, le=4)], ...],
        BeforeValidator(tuple_from_list),
        BeforeValidator(require_distinct),
    ] = Field((2, 3, 4), description="Facts that a closed-world question combines, in hops.")
    kinds: Annotated[
        tuple[Literal["bridge", "comparison"], ...],
        BeforeValidator(tuple_from_list),
        BeforeValidator(require_distinct),
    ] = Field(("bridge", "comparison"), description="Kinds of closed-world questions.")
    corpus: str = Field(
        "own",
        min_length=1,
        description="What is searched: the question's own passages (own; the closed world has one "
        "corpus), those of all questions (all), or a file of passages.",
    )
    retriever: str = Field(
        "bm25",
        pattern=r"^(bm25|https?://\S+)$",
        description="What searches: bm25 in the process, or the URL of a /retrieve service.",
    )
    k: int = Field(3, ge=1, le=100, description="Passages shown after one search, in passages.")
    max_turns: int = Field(6, ge=1, description="Most model responses in one episode, in turns.")
    max_searches: int = Field(5, ge=0, description="Most searches in one episode, in searches.")
    max_information_words: PositiveInt = Field(
        300,
        description="Most words shown after one search, in words; the rest is cut. In scripts "
        "without blanks (Chinese, Japanese, Thai) each character is a word.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(qa_violations(self))
        return self


class ArithmeticConfig(ShippedConfig):
    """Work out a sum in steps, and give the result in a box."""

    kind: Literal["arithmetic"] = Field("arithmetic", description="Name of the environment.")
    terms: Annotated[
        tuple[Annotated[int, Field(ge=2, le=64)], ...],
        BeforeValidator(tuple_from_list),
        BeforeValidator(require_distinct),
    ] = Field((3, 4, 5), description="Numbers of terms that a sum may have, in terms.")
    largest: int = Field(9, ge=1, le=10**9, description="Greatest term (no unit); the least is 1.")


class CustomEnvConfig(TasksConfig):
    """A custom environment: any `rltune_envs.base.TextEnv`, by import path."""

    kind: Literal["custom"] = Field("custom", description="Name of the environment.")
    factory: ImportPath = Field(
        description="Import path of the environment's class: my_pkg.my_mod:MyEnv. The folder that "
        "rltune is called in is on the path."
    )
    arguments: FreeMapping = Field(
        default_factory=dict, description="Keyword arguments of the class (JSON values)."
    )


Env = (
    SokobanConfig
    | FrozenLakeConfig
    | MultihopQaConfig
    | ArithmeticConfig
    | VerifiedConfig
    | CustomEnvConfig
)


DEFAULT_KIND = "sokoban"
"""Kind of an env section that names none."""


def long_env(value: Any) -> Any:
    """Return the short forms of an env section in full; anything else unchanged.

    `my_pkg.my_mod:MyEnv` is a custom class, as is a taskset, and a name is a kind.
    """
    if isinstance(value, dict) and value.get("kind") == TASKSETS:
        return long_taskset(value, TasksConfig.model_fields)
    if not isinstance(value, str):
        return value
    return {"kind": "custom", "factory": value} if ":" in value else {"kind": value}
