"""A proposal: one axis over what a study holds, as YAML. Pure: a text in, a typed tree out.

What a proposer writes is never trusted: it names a key, values and predictions, and all else comes
from the study.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import Field

from rltune.errors import Problem, SpecError
from rltune.judge.verdicts import without_thought
from rltune.lineage.calibration import parse_delta
from rltune.report.markdown import visible
from rltune.spec.identity import value_text
from rltune.spec.keys import choices_of, did_you_mean
from rltune.spec.paths import KeyPath
from rltune.spec.problems import Locate, show, validate
from rltune.spec.rule import RuleError, evaluate_rule
from rltune.spec.schema.base import Section
from rltune.spec.schema.proposal import OneLine
from rltune.spec.schema.sweep import Axis, Name, Text, value_key
from rltune.spec.yamlfile import parse_yaml
from rltune.types import Json

WHERE = Path("proposal")
"""What the messages call its text."""

FIXED = {
    "env": "what is measured, not how it is learned",
    "reward": "what is measured, not how it is learned",
    "resources": "how much of the machine a trial takes, not how it is learned",
}
"""Sections that no proposer moves, with what they decide. It could make the tasks easier, or start
more processes and threads than the machine has."""

_LONGEST = 20_000  # characters of a proposal
_VALUES = 12  # of an axis: each is one condition, over all seeds
_COUPLED = 4  # keys coupled to an axis
_TEXT = 500  # characters of a question, a hypothesis or a reason
_BLOCK = re.compile(r"^```[\w-]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Proposal(Section):
    """One proposal."""

    question: Text = Field(description="The question that its sweep answers, in a sentence.")
    hypothesis: OneLine = Field("", description="What is expected and why, in a sentence.")
    source: Name | None = Field(
        None,
        description="The finished sweep of the study whose best kept condition it departs from; "
        "null: the last one.",
    )
    axis: Axis = Field(description="The one knob, as in a sweep file; a list of single values.")


def read_proposal(answer: str) -> Proposal:
    """Return the proposal in an answer, which may stand in one fenced block.

    Raises:
        SpecError: It is none, or not one of this form; carries every problem.

    """
    file = parse_yaml(WHERE, _yaml_in(answer), "proposal")
    if isinstance(file, Problem):
        raise SpecError(file)
    problems: list[Problem] = []
    proposal: Proposal | None = validate(Proposal, file.data, file.locate, problems)
    if proposal is not None:
        problems += _axis_problems(proposal.axis, file.locate)
        problems += _text_problems(proposal, file.locate)
    if problems or proposal is None:
        raise SpecError(list(dict.fromkeys(problems)))
    return proposal


def _yaml_in(answer: str) -> str:
    text = without_thought(answer)
    blocks = _BLOCK.findall(text)
    problem = None
    if len(blocks) > 1:
        problem = Problem(str(WHERE), f"there are {len(blocks)} fenced blocks.", "Give one.")
    if len(text) > _LONGEST:
        problem = Problem(str(WHERE), f"it has {len(text)} characters.", f"{_LONGEST} at most.")
    if problem is not None:
        raise SpecError(problem)
    return blocks[0] if blocks else text


def _axis_problems(axis: Axis, locate: Locate) -> Iterator[Problem]:
    """Yield what is not one knob, or says nothing of what is expected."""
    if isinstance(axis.values, Mapping):
        what = "named values can set several keys; a proposal moves one."
        yield Problem(locate(("axis", "values")), what, action="Give a list of single values.")
        return
    if len(axis.values) > _VALUES:
        what = f"there are {len(axis.values)} values."
        yield Problem(locate(("axis", "values")), what, action=f"{_VALUES} at most.")
        return
    yield from _key_problems(axis.key, ("axis", "key"), locate)
    for i, value in enumerate(axis.values):
        yield from _value_problems(axis.key, value, ("axis", "values", str(i)), locate)
    if len(axis.coupled) > _COUPLED:
        what = f"there are {len(axis.coupled)} coupled keys."
        yield Problem(locate(("axis", "coupled")), what, action=f"{_COUPLED} at most.")
    for i, one in enumerate(axis.coupled):
        path = ("axis", "coupled", str(i))
        yield from _key_problems(one.key, (*path, "key"), locate)
        for value in axis.values:
            with suppress(RuleError):  # the sweep that has it is refused
                given = evaluate_rule(one.rule, value)
                yield from _value_problems(one.key, given, (*path, "rule"), locate)
    yield from _unpredicted(axis, locate)


def _key_problems(key: str, path: KeyPath, locate: Locate) -> Iterator[Problem]:
    decides = FIXED.get(key.partition(".")[0])
    if decides:
        yield Problem(
            locate(path), f"{key!r} decides {decides}.", action="Move a key of another section."
        )


def _value_problems(key: str, value: Json, path: KeyPath, locate: Locate) -> Iterator[Problem]:
    """Yield what is wrong with a text: it may name a path, a model, a service or code."""
    choices = choices_of(key)
    if isinstance(value, str) and value not in choices:
        allowed = "A proposal moves numbers, true/false, and choices that have a name."
        if choices:
            allowed = f"Choose one of {', '.join(choices)}."
        hint = did_you_mean(value, choices)
        yield Problem(locate(path), f"{value!r} is not a choice here.", allowed, hint)


def _unpredicted(axis: Axis, locate: Locate) -> Iterator[Problem]:
    """Yield the values without a prediction that can be compared with what comes."""
    told = {value_key(value): text for value, text in axis.expect.items()}
    action = 'Write the difference to the control as one number, such as "+0.05".'
    for value in axis.values:
        if value_key(value) == value_key(axis.control):
            continue
        text = told.get(value_key(value))
        if text is None:
            what = f"there is no prediction for {show(value)}."
            yield Problem(locate(("axis", "expect")), what, action=action)
        elif parse_delta(text) is None:
            where = locate(("axis", "expect", value_text(value)))
            yield Problem(where, f"{text!r} has not exactly one clear number.", action=action)


def _text_problems(proposal: Proposal, locate: Locate) -> Iterator[Problem]:
    """Yield texts that no table could show: they are printed, and go into every lineage row."""
    axis = proposal.axis
    texts: dict[tuple[str, ...], str] = {
        ("question",): proposal.question,
        ("hypothesis",): proposal.hypothesis,
        ("axis", "why"): axis.why or "",
        **{("axis", "coupled", str(i), "why"): one.why for i, one in enumerate(axis.coupled)},
        **{("axis", "expect", str(value)): text for value, text in axis.expect.items()},
    }
    for path, text in texts.items():
        if len(text) > _TEXT:
            yield Problem(locate(path), f"it has {len(text)} characters.", f"{_TEXT} at most.")
        if visible(text) != text:
            yield Problem(locate(path), "it is not one line of plain text.", "Write one sentence.")
