"""Findings of a check: rule, severity, message, remedy, and whether it was accepted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rltune.types import Json

SEEDS_FOR_A_CLAIM = 3
"""Fewest seeds from which anything may be said about a condition."""


class Severity(StrEnum):
    """Severity of a finding."""

    ERROR = "error"  # nothing is started, or the figure says that it proves nothing
    WARNING = "warning"  # stamped on figures until remedied or accepted with a reason


RULES = {
    "S1": "conditions differ in the axis and its coupled keys only",
    "S2": "every coupled key follows its rule in every condition, and has a reason",
    "S3": "every other intervention knob is held explicitly",
    "S4": "all conditions have the same seeds, at least three",
    "S5": "equal budget: steps, rollouts a step, token limits, evaluation schedule",
    "S6": "no two conditions are the same run",
    "S7": "every value is in its knob's domain (proved by the schema when the file is loaded)",
    "S8": "no known hidden second axis",
    "S9": "sweeps of one protocol agree on every key that it does not free",
    "A1": "one commit, package set, device kind, dtype, engine, weights, inputs and task manifest",
    "A2": "the same prompts in all conditions of a seed, sampled alike before any update",
    "A3": "each condition made as many policy updates as the control, at one step and at the end",
    "A4": "every trial reached the same last step, or its early end is named",
    "A5": "evaluated on the same frozen held-out tasks at the same steps",
    "A6": "learned from rollouts of one age, which is what rollout.ahead asks for",
    "A7": "no two conditions were one run to the end",
    "A8": "what ran was proved and planned before; no trial was removed, repeated or added later",
}
"""Rule -> what holds when it finds nothing."""


PROPORTIONAL = "S6.proportional"
"""Code of the warning that two conditions are the same run up to a factor."""


def listed(labels: Sequence[str]) -> str:
    """Return the labels of conditions as the object of a sentence."""
    return labels[0] if len(labels) == 1 else f"{len(labels)} conditions ({', '.join(labels)})"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a rule found."""

    rule: str  # `S1`
    severity: Severity  # error or warning
    message: str  # what was found, with names and values
    remedy: str  # what to do about it
    accepted_reason: str | None = None  # the sweep file's reason for accepting a warning, or None
    code: str = ""  # the rule, or the rule with the kind of finding: `S8.k1_loss`
    # Labels of the two conditions that it is about; empty where it is of all.
    conditions: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return `S8.k1_loss warning: message remedy`, with the reason if it was accepted."""
        accepted = f" Accepted: {self.accepted_reason}" if self.accepted_reason else ""
        return f"{self.code or self.rule} {self.severity}: {self.message} {self.remedy}{accepted}"


def error(rule: str, message: str, remedy: str) -> Finding:
    """Return an error finding."""
    return Finding(rule, Severity.ERROR, message, remedy, code=rule)


def warning(code: str, message: str, remedy: str, *, conditions: tuple[str, ...] = ()) -> Finding:
    """Return a warning finding; the rule is the part of the code before the dot."""
    rule = code.partition(".")[0]
    return Finding(rule, Severity.WARNING, message, remedy, code=code, conditions=conditions)


def accept(findings: Sequence[Finding], reasons: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return findings with the written reason on each accepted warning; errors stay errors.

    A reason for a whole rule was written about one kind of finding. Where there are several it
    accepts none: those that it was not written about would go unseen.

    Args:
        findings: What the rules found.
        reasons: Rule (`S8`) or code (`S8.k1_loss`) -> reason; the code wins.

    """
    kinds: dict[str, set[str]] = {}
    for finding in findings:
        if finding.severity is Severity.WARNING and finding.code not in reasons:
            kinds.setdefault(finding.rule, set()).add(finding.code)
    whole = {rule: text for rule, text in reasons.items() if len(kinds.get(rule, ())) == 1}
    return tuple(
        replace(finding, accepted_reason=reasons.get(finding.code, whole.get(finding.rule)))
        if finding.severity is Severity.WARNING
        else finding
        for finding in findings
    )


@dataclass(frozen=True, slots=True)
class AxisRow:
    """One condition in the table of what moves: its axis and coupled keys with their values."""

    condition: str
    is_control: bool
    settings: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class ComparabilityReport:
    """The static proof that only one knob moves, or why it fails."""

    ok: bool  # whether there is no error
    errors: tuple[Finding, ...]  # findings that stop the sweep
    warnings: tuple[Finding, ...]  # findings that are stamped on figures, accepted ones included
    axis_table: tuple[AxisRow, ...]  # a row per condition


def split(findings: Sequence[Finding]) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return (errors, warnings), each in the order given."""
    errors = tuple(f for f in findings if f.severity is Severity.ERROR)
    return errors, tuple(f for f in findings if f.severity is Severity.WARNING)
