r"""The answer is scored by the data set of reasoning-gym that made the problem."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real

from rltune_envs.choices import require_choice
from rltune_envs.errors import CustomCodeError, VerifierError
from rltune_envs.files_rows import RowError
from rltune_envs.generated import score_of
from rltune_envs.verifiers.base import Grade, Problem, Verifier
from rltune_envs.verifiers.boxed import last_boxed

_OPEN, _CLOSE = "<answer>", "</answer>"


def last_tagged(response: str) -> str | None:
    """Return the content of the last `<answer>` tags, stripped; None without any.

    As `reasoning_gym.utils.extract_answer` finds it, which the package's evaluation calls, but in
    one pass: its search takes minutes where tags are opened many times and never closed.
    """
    before_close = response.split(_CLOSE)[:-1]
    found = next((text for text in reversed(before_close) if _OPEN in text), None)
    return None if found is None else found.partition(_OPEN)[2].strip()


def _whole(response: str) -> str | None:
    return response.strip() or None


def _tagged_or_whole(response: str) -> str | None:
    tagged = last_tagged(response)
    return _whole(response) if tagged is None else tagged


_EXTRACT: Mapping[str, tuple[Callable[[str], str | None], tuple[str, str]]] = {
    "tags": (last_tagged, (_OPEN, _CLOSE)),
    "boxed": (last_boxed, ("\\boxed{", "}")),
    "whole": (_whole, ("", "")),
    "tags_or_whole": (_tagged_or_whole, (_OPEN, _CLOSE)),
}
"""Name -> how an answer is found, and the text before and after it in a response."""


@dataclass(frozen=True, slots=True)
class ReasoningGymVerifier:
    """Grades by the data set's own `score_answer`, in a process.

    Attributes:
        extract: Where the answer stands in a response.

    """

    extract: str

    @property
    def has_form(self) -> bool:
        """Whether an answer stands in tags or a box."""
        return self.extract in ("tags", "boxed")

    def grade(self, response: str, problem: Problem) -> Grade:
        """Return the data set's score of the answer, and 0 where there is none.

        Raises:
            VerifierError: The scorer raised, hung, or gave no number from 0 to 1.

        """
        given = _EXTRACT[self.extract][0](response)
        if given is None:
            return Grade(0.0, None)
        dataset = problem.made_by()
        what = f"{dataset.name} on {problem.place}"
        try:
            score = score_of(dataset, given, problem.entry)
        except CustomCodeError as error:
            raise VerifierError(what, error.cause) from error
        if not isinstance(score, Real) or not 0 <= float(score) <= 1:
            raise VerifierError(what, f"its score is {score!r:.80}, not a number from 0 to 1")
        return Grade(float(score), given)

    def write(self, answer: str) -> str | None:
        """Return an answer in its tags or box."""
        before, after = _EXTRACT[self.extract][1]
        return before + answer + after

    def gold(self, problem: Problem) -> str:
        """Return the answer that came with the problem; empty where it has none.

        Raises:
            RowError: It cannot stand where answers are looked for.

        """
        answer = problem.answer
        if answer and _EXTRACT[self.extract][0](self.write(answer) or "") != answer.strip():
            raise RowError(
                f"the answer {answer!r:.60} does not come back from {self.write('...')}; choose "
                f"another extract: {', '.join(_EXTRACT)}"
            )
        return answer


def reasoning_gym(*, extract: str = "tags") -> Verifier:
    r"""Return the verifier of generated problems: the score of the data set that made them.

    Args:
        extract: Where the answer is: in the last `<answer>` `tags` (as in the package's own
            evaluation), in the last whole `\boxed{}` (`boxed`), the `whole` response, or the whole
            response where there are no tags (`tags_or_whole`).

    Raises:
        ValueError: `extract` is none of these.

    """
    require_choice("extract", extract, tuple(_EXTRACT))
    return ReasoningGymVerifier(extract)
