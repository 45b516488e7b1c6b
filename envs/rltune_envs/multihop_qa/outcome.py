"""The result of one response, before the limits of the episode are looked at."""

from dataclasses import dataclass

from rltune_envs.base import FailureClass
from rltune_envs.multihop_qa.protocol import ANSWER, Action


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a response did.

    Attributes:
        observation: What the policy reads next.
        action: What was carried out; None where nothing was.
        fault: What failed that is not the policy's doing; empty where nothing did.

    """

    observation: str = ""
    action: Action | None = None
    fault: str = ""


def failure_class(action: Action | None, *, success: bool, has_fault: bool) -> FailureClass:
    """Return how an episode failed that ends with this action."""
    if has_fault:
        return FailureClass.FAULT
    if success:
        return FailureClass.NONE
    if action is None:
        return FailureClass.MALFORMED
    return FailureClass.WRONG if action.kind == ANSWER else FailureClass.UNFINISHED
