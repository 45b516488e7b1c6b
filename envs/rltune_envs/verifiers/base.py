"""What a verifier is: a grade for a response to a problem."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rltune_envs.errors import VerifierError
from rltune_envs.generated import Dataset


@dataclass(frozen=True, slots=True)
class Problem:
    """One row of a file, or one generated problem: what is asked, and what is right.

    Attributes:
        prompt: The text that the policy reads.
        answer: The gold answer, as text; empty where nobody knows one.
        choices: The choices of a multiple-choice problem; empty elsewhere.
        row: The whole row, as JSON values.
        place: `FILE:ROW` or `SOURCE[SEED]`, for messages.
        dataset: The data set that made it; None for a row.
        entry: What the data set made, as its scorer takes it.

    """

    prompt: str
    answer: str
    choices: tuple[str, ...] = ()
    row: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""
    dataset: Dataset | None = None
    entry: Mapping[str, Any] = field(default_factory=dict)

    def made_by(self) -> Dataset:
        """Return the data set that made it.

        Raises:
            VerifierError: None did.

        """
        if self.dataset is None:
            raise VerifierError(self.place, "it is a row of a file, which no data set can score")
        return self.dataset


@dataclass(frozen=True, slots=True)
class Grade:
    """The judgement of a response.

    Attributes:
        score: From 0 to 1; 1 is right.
        given: The answer that was found in the response; None where there is none to be read.

    """

    score: float
    given: str | None


class Verifier(Protocol):
    """Grades responses."""

    @property
    def has_form(self) -> bool:
        """Whether an answer has a form, so that a text without it is no answer."""

    def grade(self, response: str, problem: Problem) -> Grade:
        """Grade a response.

        Raises:
            VerifierError: It failed: a fault, not a wrong answer.

        """

    def write(self, answer: str) -> str | None:
        """Return a response that gives an answer; None where nobody but the policy can say how."""

    def gold(self, problem: Problem) -> str:
        """Return the gold answer in the verifier's own form.

        Raises:
            RowError: The row's answer cannot be one.

        """


@dataclass(frozen=True, slots=True)
class TextVerifier:
    """A verifier that finds an answer and compares it with the gold one.

    Attributes:
        find: Response -> its answer; None where there is none to be read.
        is_equal: Whether a given answer is as good as the gold one.
        frame: Text before and after an answer in a response; None where it cannot be known.
        has_form: Whether an answer has a form.
        check: Problem -> its gold answer, in the verifier's own form; raises RowError.

    """

    find: Callable[[str], str | None]
    is_equal: Callable[[str, str], bool]
    frame: tuple[str, str] | None
    has_form: bool = True
    check: Callable[[Problem], str] = lambda problem: problem.answer

    def grade(self, response: str, problem: Problem) -> Grade:
        """Return 1 for an answer that equals the gold one, 0 for another or none."""
        given = self.find(response)
        is_right = given is not None and self.is_equal(given, self.gold(problem))
        return Grade(float(is_right), given)

    def write(self, answer: str) -> str | None:
        """Return an answer in its frame."""
        return None if self.frame is None else self.frame[0] + answer + self.frame[1]

    def gold(self, problem: Problem) -> str:
        """Return the gold answer, checked."""
        return self.check(problem)
