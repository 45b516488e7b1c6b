"""A study file as a frozen typed tree."""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from rltune.runner.budget import seconds_of
from rltune.spec.errors import Violation, refuse
from rltune.spec.schema.attribution import JudgeConfig
from rltune.spec.schema.base import ImportPath, PositiveInt, Section, tuple_from_list
from rltune.spec.schema.sweep import Name, Reason, Text

_PROMOTION = re.compile(r"best kept of ([a-z0-9][a-z0-9_-]{0,39})")


def _require_duration(text: str) -> str:
    if text and seconds_of(text) <= 0:
        refuse(
            [
                Violation(
                    "",
                    f"{text!r} is not a duration.",
                    "Give one such as 8h or 1h30m; nine digits at most.",
                )
            ]
        )
    return text


def _refuse_other_rules(accept: dict[str, str]) -> dict[str, str]:
    action = "Only S9 can; what a sweep itself warns of is accepted in its own file."
    others = [rule for rule in accept if rule != "S9"]
    refuse([Violation(rule, f"{rule!r} cannot be accepted here.", action) for rule in others])
    return accept


class StudyBudget(Section):
    """What the trials of a study may use, all nights together. No trial starts beyond it."""

    time: Annotated[str, AfterValidator(_require_duration)] = Field(
        "", description="Time that its trials may run, such as 8h or 2d12h; empty for no limit."
    )
    tokens: PositiveInt | None = Field(
        None, description="Tokens that its trials may generate; null for no limit."
    )
    money: Annotated[str, Field(pattern=r"^(\d{1,9}(\.\d+)? ?[A-Z]{3})?$")] = Field(
        "",
        description="What calls to a training service may cost, such as 20USD; needs a price file "
        "in its currency; empty for no limit.",
    )


class StudySweep(Section):
    """One sweep of a study."""

    name: Name = Field(description="Name inside the study.")
    file: Text = Field(description="Sweep file, relative to the study file.")
    question: str = Field("", description="Why it is in the study, in a sentence.")
    profile: Name | None = Field(None, description="Profile; null for the sweep's default.")
    seeds: Annotated[tuple[int, ...], BeforeValidator(tuple_from_list)] = Field(
        (), description="Seeds instead of the file's; empty for those of the file."
    )
    set: Annotated[tuple[str, ...], BeforeValidator(tuple_from_list)] = Field(
        (), description="KEY=VALUE texts, as --set takes them."
    )
    after: Annotated[tuple[Name, ...], BeforeValidator(tuple_from_list)] = Field(
        (), description="Sweeps of the study that must be finished before it starts."
    )
    control: Annotated[str, Field(pattern=f"^({_PROMOTION.pattern})?$")] = Field(
        "",
        description="`best kept of NAME`: the condition that sweep NAME shows to be better than "
        "its control becomes part of what is held here. Empty: the file as it is.",
    )
    accept: Annotated[dict[str, Reason], AfterValidator(_refuse_other_rules)] = Field(
        default_factory=dict,
        description="S9 -> the written reason for accepting that it differs from the sweep whose "
        "best it holds, else from the first one, in more than both move.",
    )

    @property
    def source(self) -> str:
        """The sweep whose best condition is promoted; empty without one."""
        found = _PROMOTION.fullmatch(self.control)
        return found[1] if found else ""

    @property
    def needs(self) -> tuple[str, ...]:
        """The sweeps that must be finished before this one starts, each once."""
        return tuple(dict.fromkeys((*self.after, *([self.source] if self.source else []))))


class Proposer(Section):
    """Who proposes further sweeps once those of the file are finished."""

    kind: Literal["llm", "mine"] = Field(
        description="A language model behind an OpenAI-compatible service (llm), or a function of "
        "yours (mine)."
    )
    function: ImportPath | None = Field(
        None,
        description="For mine: `module:function`; it is given what a model is shown, as a mapping, "
        "and returns a proposal, as YAML or as a mapping.",
    )
    llm: JudgeConfig | None = Field(
        None, description="For llm: the service and its limits, which are those of the whole study."
    )
    sweeps: PositiveInt = Field(3, description="Most proposals that are run, in sweeps.")
    tries: PositiveInt = Field(
        3,
        description="Proposals that may be refused one after the other before a command asks no "
        "more, in proposals.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        found = []
        if self.kind == "mine" and self.function is None:
            what, action = "'function' is missing: kind mine calls one.", "Give module:function."
            found.append(Violation("function", what, action))
        for name in ("function",) if self.kind == "llm" else ("llm",):
            if getattr(self, name) is not None:
                what = f"{name!r} does not belong to kind {self.kind}."
                found.append(Violation(name, what, "Remove it, or choose the other kind."))
        refuse(found)
        return self

    @property
    def name(self) -> str:
        """Who it is, in each lineage row of its sweeps."""
        return self.function or f"llm {self.service.model}"

    @property
    def service(self) -> JudgeConfig:
        """The service that kind llm asks."""
        return self.llm or JudgeConfig()


class StudySpec(Section):
    """One study file."""

    name: Name = Field(description="Name of the study; names its folder, study-NAME.")
    question: Text = Field(description="The question that its sweeps answer together.")
    budget: StudyBudget = Field(
        default_factory=lambda: StudyBudget(), description="What its trials may use."
    )
    sweeps: Annotated[tuple[StudySweep, ...], BeforeValidator(tuple_from_list)] = Field(
        description="The sweeps; of those that are ready the first is run."
    )
    proposer: Proposer | None = Field(
        None, description="Who proposes sweeps after these; null: nobody."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [sweep.name for sweep in self.sweeps]
        found = [
            Violation("sweeps", f"{name!r} is given twice.", "Give each sweep a name of its own.")
            for name in dict.fromkeys(names)
            if names.count(name) > 1
        ]
        if not names:  # min_length would also count entries that are invalid
            found.append(Violation("sweeps", "[] is empty.", "Give at least one."))
        if self.proposer is not None:
            found += [
                Violation("sweeps", f"{name!r} is a name of proposals.", "Choose another.")
                for name in names
                if name.startswith("proposed-")
            ]
        known: list[str] = []
        for i, sweep in enumerate(self.sweeps):
            for need in sweep.needs:
                if need not in known:
                    what = f"{sweep.name!r} needs {need!r}, which is not a sweep above it."
                    action = f"Choose one of {', '.join(known) or '(none)'}, or move it up."
                    found.append(Violation(f"sweeps.{i}", what, action))
            known.append(sweep.name)
        refuse(found)
        return self
