"""Problems that a data set of reasoning-gym makes, one for each seed."""

import json

from rltune_envs.errors import TaskError
from rltune_envs.files_rows import RowError
from rltune_envs.generated import Dataset, about, entry_of
from rltune_envs.verified_task.template import columns_of, fill
from rltune_envs.verifiers import Problem, Verifier

_QUESTION = "question"
_OWN = "reasoning_gym"


class GeneratedProblems:
    """The problems of a data set.

    Args:
        dataset: Makes them.
        template: The prompt, with `{question}` in it.
        kind: Name or import path of the verifier.
        verifier: The verifier.

    Raises:
        TaskError: The package is not installed, the data set makes no problem, or it has no gold
            answers and the verifier needs one.
        ValueError: There is no such data set, argument or column.

    """

    def __init__(self, dataset: Dataset, template: str, kind: str, verifier: Verifier) -> None:
        self._dataset = dataset
        self._template = template
        self._verifier = verifier
        self._about = about(dataset)
        self.has_answers = self._about.has_answers
        if columns_of(template) != (_QUESTION,):
            raise ValueError(
                f"template is {template!r:.80}; put {{{_QUESTION}}} in it, and no other column: a "
                "generated problem has no other text to show"
            )
        if not (self.has_answers or kind == _OWN or ":" in kind):
            raise TaskError(
                f"{dataset.source} has no gold answers, which verifier {kind!r} compares with; "
                f"choose {_OWN}, or a function of your own"
            )

    def of(self, seed: int) -> Problem:
        """Return the problem of a seed.

        Raises:
            CustomCodeError: The data set could not make it.
            TaskError: Its answer is none that the verifier can read.

        """
        entry = entry_of(self._dataset, seed)
        row = json.loads(json.dumps(entry, default=repr))
        answer = "" if entry["answer"] is None else str(entry["answer"])
        place = f"{self._dataset.source}[{seed}]"
        prompt = fill(self._template, row)
        problem = Problem(prompt, answer, (), row, place, self._dataset, entry)
        try:
            self._verifier.gold(problem)
        except RowError as error:
            raise TaskError(f"{place}: {error}") from error
        return problem

    def digests(self) -> dict[str, str]:
        """Return the source -> sha256 over the version, the arguments and the first problems."""
        return {f"source: {self._dataset.source}": self._about.digest}
