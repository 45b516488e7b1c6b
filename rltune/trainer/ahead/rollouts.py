"""The rollouts of a step that is still to come, and their file in a checkpoint."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from rltune.types import Episode

FILE = "rollouts.json"


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The episodes that a training step learns from."""

    step: int  # the training step
    weights_step: int  # the training step whose update made the weights that sampled them
    episodes: tuple[Episode, ...]  # group by group
    seconds: float = 0.0  # that sampling took

    @property
    def staleness(self) -> int:
        """Training steps between the weights that sampled and those that begin the step."""
        return self.step - 1 - self.weights_step


_ROLLOUTS: TypeAdapter[Rollouts] = TypeAdapter(Rollouts)


def dump_rollouts(rollouts: Rollouts) -> str:
    """Return rollouts as JSON; floats keep every bit, NaN included."""
    return json.dumps(asdict(rollouts))


def parse_rollouts(text: str) -> Rollouts:
    """Return the rollouts of `dump_rollouts`.

    Raises:
        ValueError: It is not their JSON.

    """
    return _ROLLOUTS.validate_python(json.loads(text))


def as_restored(
    step: int, weights_step: int, episodes: Sequence[Episode], *, seconds: float
) -> Rollouts:
    """Return rollouts as a checkpoint gives them back.

    So a trial learns from the same objects whether it was interrupted or not: an environment may
    have returned a number of another type than a file can tell.
    """
    made = Rollouts(step, weights_step, tuple(episodes), seconds)
    return parse_rollouts(dump_rollouts(made))


def read_rollouts(checkpoint: Path) -> Rollouts | None:
    """Return the rollouts of the step after a whole checkpoint; None where it has none."""
    path = checkpoint / FILE
    return parse_rollouts(path.read_text(encoding="utf-8")) if path.exists() else None
