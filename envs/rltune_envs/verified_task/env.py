"""Problems of a file or a generator, graded by a verifier, as a text environment.

Reward: the verifier's score of the last response, from 0 to 1, and `format_penalty` for each turn
in which no answer can be read. Full marks are a success.
"""

import json
import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rltune_envs.base import FailureClass, GoldResponse, Step, Task, TextEnv, task_of
from rltune_envs.choices import PROMPTS, require_at_least, require_choice, require_penalty
from rltune_envs.errors import ProtocolError, VerifierError
from rltune_envs.generated import Dataset
from rltune_envs.protocols import (
    HasCeiling,
    HasExpert,
    HasFloor,
    HasGoldResponse,
    HasParts,
    HasRandomPlayer,
    HasRepeatedRows,
    HasShortestResponses,
    WritesActions,
)
from rltune_envs.verified_task.generated import GeneratedProblems
from rltune_envs.verified_task.problems import (
    Columns,
    FileProblems,
    Source,
    content_of,
    near_of,
    verifier_of,
)
from rltune_envs.verified_task.template import shows
from rltune_envs.verifiers import Grade, Problem
from rltune_envs.verifiers.multiple_choice import letters_of

PREFIX = "reasoning_gym:"
FEEDBACK = "That is not right. Try again."
CHOICE = "multiple_choice"


class VerifiedTaskEnv(TextEnv):
    """One problem an episode: its prompt, a response, a grade.

    Args:
        train: File of problems, one a row: .jsonl, .json, .csv or .parquet; None with a `source`.
        source: Data set that generates them, `reasoning_gym:chain_sum`, in place of files.
        arguments: Keywords of the data set's configuration.
        heldout: File of held-out problems; None takes a share of `train`, by content.
        test: The same for test problems.
        heldout_share: Share of `train` that is held out where there is no file for it.
        test_share: The same for the test.
        template: The prompt, with names of columns in braces.
        answer_column: Column of the gold answer; None where a custom verifier reads the row.
        choices_column: Column with the list of choices; None without any.
        id_column: Column of names that no two rows share; None without one.
        verifier: Name of a verifier with its options, `{"kind": "number", "tolerance": 0.01}`, or
            the import path of a score function in place of the name.
        max_turns: Responses per episode; a wrong one is answered with `feedback`.
        feedback: What the policy reads after a response that is not right.
        system: Text shown once, before the problem.
        format_penalty: Added to the reward of a turn in which no answer can be read.
        prompt: `compact` leaves `system` out.

    Raises:
        ValueError: An argument is out of its range; it is named.
        ImportPathError: The import path of the verifier cannot be used.

    """

    difficulty_unit = "turns"
    auxiliary_names = ("score",)

    def __init__(
        self,
        *,
        train: str | None = None,
        source: str | None = None,
        arguments: Mapping[str, Any] = MappingProxyType({}),
        heldout: str | None = None,
        test: str | None = None,
        heldout_share: float = 0.2,
        test_share: float = 0.1,
        template: str = "{question}",
        answer_column: str | None = "answer",
        choices_column: str | None = None,
        id_column: str | None = None,
        verifier: Mapping[str, Any] = MappingProxyType({"kind": "reasoning_gym"}),
        max_turns: int = 1,
        feedback: str = FEEDBACK,
        system: str = "",
        format_penalty: float = 0.0,
        prompt: str = "natural",
    ) -> None:
        require_at_least(1, max_turns=max_turns)
        require_penalty(format_penalty)
        require_choice("prompt", prompt, PROMPTS)
        self._kind = str(verifier["kind"])
        self._options = _canonical(verifier)
        self._verifier = verifier_of(self._kind, self._options)
        _require_columns(self._kind, template, answer_column, choices_column)
        self._source: FileProblems | GeneratedProblems
        if source is not None:
            name, text = source.removeprefix(PREFIX), json.dumps(dict(arguments), sort_keys=True)
            dataset = Dataset(name, text)
            self._source = GeneratedProblems(dataset, template, self._kind, self._verifier)
        else:
            files = {"train": train, "heldout": heldout, "test": test}
            shares = {"heldout": heldout_share, "test": test_share}
            columns = Columns(template, answer_column, choices_column, id_column)
            self._source = FileProblems(_files(files, shares, columns), self._kind, self._options)
        self.max_turns = max_turns
        self.feedback = feedback
        self.format_penalty = format_penalty
        self._system = "" if prompt == "compact" else system
        self._problem: Problem | None = None
        self._turns = 0
        self._last: Step | None = None

    @property
    def system_prompt(self) -> str:
        """The given text; empty for the compact prompt."""
        return self._system

    @property
    def problem(self) -> Problem:
        """The problem that is being played."""
        if self._problem is None:
            raise RuntimeError("call reset(seed=...) first")
        return self._problem

    def reset(self, *, seed: int) -> str:
        """Start the problem of `seed` and show its prompt."""
        self._problem, self._turns, self._last = self._problem_of(seed), 0, None
        return self._problem.prompt

    def step(self, response: str) -> Step:
        """Grade a response."""
        problem = self.problem
        if self._last is not None and self._last.has_ended:
            return self._last.repeated()
        self._turns += 1
        try:
            self._last = self._graded(self._verifier.grade(response, problem))
        except VerifierError as error:
            self._last = self._faulty(str(error))
        return self._last

    def _graded(self, grade: Grade) -> Step:
        """Return the step of a grade: right answers and the last turn end the episode."""
        success, is_valid = grade.score >= 1, grade.given is not None
        is_last = success or self._turns >= self.max_turns
        failure = FailureClass.WRONG if is_valid else FailureClass.MALFORMED
        penalty = 0.0 if is_valid else self.format_penalty
        has_action = self._verifier.has_form and grade.given is not None
        return Step(
            "" if is_last else self.feedback,
            reward=(grade.score if is_last else 0.0) + penalty,
            terminated=is_last and is_valid,
            truncated=is_last and not is_valid,
            success=success,
            actions=(str(grade.given),) if has_action else (),
            is_valid=is_valid,
            n_invalid=int(not is_valid),
            failure_class=failure if is_last and not success else FailureClass.NONE,
            auxiliary={"score": float(grade.score)} if is_last else {},
        )

    def _faulty(self, fault: str) -> Step:
        """Return the step of a verifier that failed; it ends the episode, which teaches nothing."""
        return Step(
            "",
            truncated=True,
            failure_class=FailureClass.FAULT,
            auxiliary={"score": 0.0},
            fault=fault,
        )

    def task(self, seed: int) -> Task:
        """Describe the problem of `seed`."""
        problem = self._problem_of(seed)
        return task_of(
            "verified",
            content_of(problem),
            seed,
            near=near_of(problem),
            facts={"source": problem.place},
        )

    def part_seeds(self, part: str) -> Sequence[int]:
        """Return the seeds of a split of the rows."""
        return self._files.all.seeds(part)

    def repeated_rows(self) -> int:
        """Return the number of rows that ask and answer the same as an earlier one."""
        return self._files.all.n_repeated

    def file_digests(self) -> Mapping[str, str]:
        """Return what names each file, or the generator -> sha256, computed anew.

        Raises:
            TaskError: A file is gone.

        """
        return self._source.digests()

    def gold(self, seed: int) -> Mapping[str, Any]:
        """Return the gold answer and the whole row of the problem of `seed`."""
        problem = self._problem_of(seed)
        answers = [self._verifier.gold(problem)] if problem.answer else []
        return {"answers": answers, "row": dict(problem.row)}

    def format_response(self, actions: Sequence[str]) -> str:
        """Write the first answer as a response; a turn has one."""
        written = self._verifier.write(actions[0])
        if written is None:
            raise ValueError(f"verifier {self._kind} does not say how an answer is written")
        return written

    def expert_actions(self) -> tuple[str, ...] | None:
        """Give the gold answer; None after the end."""
        return None if self._has_ended else (self._verifier.gold(self.problem),)

    def gold_response(self) -> GoldResponse | None:
        """Return the response with the gold answer; None after the end."""
        if self._has_ended:
            return None
        written = self.format_response(self.expert_actions() or ())
        return GoldResponse("", (written,), "")

    def shortest_responses(self) -> tuple[str, ...]:
        """Return the response for each letter that a choice of any problem has."""
        longest = max(self._files.all.problems, key=lambda problem: len(problem.choices))
        return tuple(self.format_response((letter,)) for letter in letters_of(longest))

    def random_actions(self, rng: random.Random) -> tuple[str, ...]:
        """Guess a choice."""
        return (rng.choice(letters_of(self.problem)),)

    def random_success_probability(self, seed: int) -> float:
        """Return the probability that one of `max_turns` independent guesses is right."""
        n = len(self._problem_of(seed).choices)
        return 1.0 - (1.0 - 1.0 / n) ** self.max_turns

    def optimal_success_probability(self, seed: int) -> float:
        """Return 1: the gold answer is right."""
        return 1.0

    def supports_protocol(self, protocol: type) -> bool:
        """Return whether its verifier makes a protocol possible.

        Choices make guesses possible, an answer with a form actions, and a way to write an answer
        the gold response.
        """
        if protocol in (HasRandomPlayer, HasFloor, HasShortestResponses):
            return self._kind == CHOICE
        if protocol in (HasParts, HasRepeatedRows):
            return isinstance(self._source, FileProblems)
        if protocol in (WritesActions, HasExpert):
            return self._verifier.has_form and self._source.has_answers
        if protocol in (HasGoldResponse, HasCeiling):
            return self._verifier.write("") is not None and self._source.has_answers
        return super().supports_protocol(protocol)

    @property
    def _has_ended(self) -> bool:
        return self._last is not None and self._last.has_ended

    @property
    def _files(self) -> FileProblems:
        if not isinstance(self._source, FileProblems):
            raise ProtocolError(type(self).__name__, ("part_seeds",))
        return self._source

    def _problem_of(self, seed: int) -> Problem:
        return self._source.of(seed)


def _files(
    files: Mapping[str, str | None], shares: Mapping[str, float], columns: Columns
) -> Source:
    """Return the files that are given, and the shares of the parts that have none."""
    own = {part: share for part, share in shares.items() if files[part] is None}
    _require_shares(own)
    given = tuple((part, str(path)) for part, path in files.items() if path is not None)
    return Source(given, tuple(own.items()), columns)


def _canonical(verifier: Mapping[str, Any]) -> str:
    """Return the options of a verifier as a JSON object; what is None is left at its default."""
    options = {k: v for k, v in verifier.items() if k != "kind" and v is not None}
    return json.dumps(options, sort_keys=True)


def _require_columns(kind: str, template: str, answer: str | None, choices: str | None) -> None:
    """Refuse a missing or superfluous column, and a prompt that shows the answer."""
    if answer is None and ":" not in kind:
        raise ValueError(f"answer_column is None, but verifier {kind!r} compares with an answer")
    if (kind == CHOICE) != (choices is not None):
        state = "needs" if choices is None else "does not read"
        raise ValueError(f"choices_column is {choices!r}, but verifier {kind!r} {state} choices")
    if answer is not None and shows(template, answer):
        raise ValueError(
            f"template shows {{{answer}}}, the answer; leave it out, or write {{{{{answer}}}}} for "
            "the word in braces"
        )


def _require_shares(shares: Mapping[str, float]) -> None:
    """Refuse shares that leave nothing to train on."""
    for part, share in shares.items():
        if not 0 <= share < 1:
            raise ValueError(f"{part}_share is {share!r}; give a number from 0 to below 1")
    if sum(shares.values()) >= 1:
        given = ", ".join(f"{part}_share is {share!r}" for part, share in shares.items())
        raise ValueError(f"{given}: nothing is left to train on; lower one of them")
