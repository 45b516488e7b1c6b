"""The base of every config section, and the value types that sections share."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from rltune.spec.errors import Violation, refuse
from rltune.spec.json_values import not_json
from rltune.spec.paths import below

KL_ALIASES = {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}
"""veRL's names of the KL estimators and ours; a config is stored under ours."""


def canonical_kl_type(name: str) -> str:
    """Return the one name of a KL estimator: aliases resolved, `k2+` is `k2`.

    Two names of one estimator must give one trial identity. The suffix `+` asks for the gradient
    of k2, which k2 has already.
    """
    base, plus = (name[:-1], "+") if name.endswith("+") else (name, "")
    base = KL_ALIASES.get(base, base)
    return base if base == "k2" else base + plus


def tuple_from_list(value: object) -> object:
    """Return a list as a tuple (YAML knows lists only); anything else unchanged."""
    return tuple(value) if isinstance(value, list) else value


def with_default(tag: str, variant: str) -> Callable[[object], object]:
    """Return what names the default variant in a section that names none."""
    return lambda value: {tag: variant, **value} if isinstance(value, dict) else value


def require_json(value: object) -> object:
    """Return a free mapping unchanged when JSON can record all of it.

    Raises:
        PydanticCustomError: Carries every key and value that JSON cannot keep.

    """
    refuse([Violation(below(path), what, action) for path, what, action in not_json(value)])
    return value


FreeMapping = Annotated[dict[str, Any], BeforeValidator(require_json)]
"""Free keys with JSON values; see `rltune.spec.paths.OPEN_SECTIONS`."""

KlType = Annotated[
    Literal[
        "k1", "k2", "k3", "abs", "full", "kl", "mse", "low_var_kl",
        "k1+", "k2+", "k3+", "abs+", "full+", "kl+", "mse+", "low_var_kl+",
    ],
    AfterValidator(canonical_kl_type),
]  # fmt: skip

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
ImportPath = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")]
PositiveInt = Annotated[int, Field(ge=1)]
LearningRate = Annotated[float, Field(gt=0.0, le=1.0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]
NonNegativeFloat = Annotated[float, Field(ge=0.0)]


class Section(BaseModel):
    """Base of every config section: frozen, no unknown keys, no silent type conversion, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
