"""The fence: by which rules a proposed sweep may run. Who proposes has no say in it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rltune.comparability.findings import ComparabilityReport
from rltune.comparability.inactive_keys import inactive_keys
from rltune.errors import InputError, Problem, SpecError
from rltune.forecast.cost import TrialCost, measure, trial_cost
from rltune.lineage.row import LineageRow
from rltune.report.render import duration
from rltune.runner.proof import prove
from rltune.spec.identity import diff_configs, flatten, is_excluded
from rltune.spec.keys import nested, typed
from rltune.spec.load import LoadedSweep
from rltune.spec.problems import show
from rltune.store.service_usage import ServiceUsage, money
from rltune.study.load import Study
from rltune.study.promotion import verdicts_of_run
from rltune.study.proposal import WHERE, Proposal, read_proposal
from rltune.study.queue import Limits, Used
from rltune.study.records import Base, base_of, with_sweep, write_proposed
from rltune.study.schema import StudySweep
from rltune.study.state import Standing, standings, used
from rltune.trainer.preflight.prices import prices_of
from rltune.trainer.preflight.references import require_usable
from rltune.types import RowStatus

Prove = Callable[[LoadedSweep, Path], ComparabilityReport]

_NO_EVIDENCE = frozenset({RowStatus.HARNESS_ABORT, RowStatus.PREEMPTED})


@dataclass(frozen=True, slots=True)
class Ground:
    """What a proposal is judged on."""

    study: Study  # with what was accepted before
    runs_dir: Path  # folder of the run folders
    found: tuple[Standing, ...]  # where each of its sweeps stands
    rows: tuple[LineageRow, ...]  # of all of them
    no_custom_code: bool = False
    prove: Prove = prove  # what `rltune check --deep` asks

    @property
    def sources(self) -> dict[str, Standing]:
        """The finished sweeps, from which a proposal may depart, by name."""
        return {one.sweep.name: one for one in self.found if one.is_finished}


def review(answer: str, name: str, ground: Ground) -> StudySweep:
    """Return the place of a proposed sweep in the study, if every rule lets it run.

    Args:
        answer: What the proposer wrote.
        name: Of the sweep.
        ground: What it is judged on; its sweep file is written in the folder of the study.

    Raises:
        SpecError: A rule does not; carries the problems.

    """
    proposal = read_proposal(answer)
    source = _source(proposal, ground)
    base = base_of(source, verdicts_of_run(source.run))
    own = ground.study.folder(ground.runs_dir).path
    entry = write_proposed(ground.study, own, name, proposal, base)
    longer = with_sweep(ground.study, entry)
    standing = standings(longer, ground.runs_dir, work=own)[-1]  # no promotion is decided yet
    loaded = standing.loaded
    try:
        require_usable(loaded, Path.cwd(), no_custom_code=ground.no_custom_code)
        problems = [
            *_other_base(base, loaded),
            *_second_axes(loaded),
            *_repeated(standing, ground),
        ]
        problems = problems or [*_unproven(ground.prove(loaded, Path.cwd()))]
        problems = problems or [*_too_large(standing, base, ground)]
    except InputError as error:
        raise SpecError(error.problems or str(error)) from error
    if problems:
        raise SpecError(problems)
    return entry


def _source(proposal: Proposal, ground: Ground) -> Standing:
    names = list(ground.sources)
    if proposal.source is None:
        return ground.sources[names[-1]]
    if proposal.source not in names:
        what = f"{proposal.source!r} is not a finished sweep of the study."
        raise SpecError(Problem(f"{WHERE}: source", what, f"Choose one of {', '.join(names)}."))
    return ground.sources[proposal.source]


def _other_base(base: Base, loaded: LoadedSweep) -> Iterator[Problem]:
    """Yield where the control is not what the study holds: then more than the axis would move."""
    for key, (now, given) in diff_configs(base.config, loaded.control.config).items():
        if not is_excluded(key):
            what = f"{key} is {show(now)} in the best kept of {base.source.sweep.name}, and "
            what += f"{show(given)} in the control of the proposal."
            yield Problem(f"{WHERE}: axis.control", what, action="Make that the control.")


def _second_axes(loaded: LoadedSweep) -> Iterator[Problem]:
    """Yield the coupled keys without which the axis could move, too: they are a second axis.

    Keys that need only each other, such as a switch and its value, are one together.
    """
    axis, control = loaded.spec.axis, flatten(loaded.control.config)
    keys = [one.key for one in axis.coupled]
    for some in (x for n in range(1, len(keys) + 1) for x in combinations(keys, n)):
        for condition in loaded.conditions:
            flat = flatten(condition.config)
            if any(flat.get(key) == control.get(key) for key in some):
                continue
            if not _is_nothing({**flat, **{key: control.get(key) for key in some}}, axis.key):
                names = " with ".join(map(repr, some))
                what = f"{names} is a second axis: {condition.label} has an effect without it."
                action = "Couple only what the axis has no effect without."
                yield Problem(f"{WHERE}: axis.coupled", what, action=action)
                return


def _is_nothing(flat: Mapping[str, Any], axis: str) -> bool:
    """Return whether a config is refused, or its axis has no effect."""
    try:
        return axis in inactive_keys(typed(nested(flat)))
    except ValidationError:
        return True


def _repeated(standing: Standing, ground: Ground) -> Iterator[Problem]:
    """Yield the conditions that the lineage has: their result is known."""
    known: dict[str, str] = {}
    for one in ground.found:
        for spec in one.due.specs:
            known.setdefault(spec.config_hash, f"{one.run.path.name}/{spec.trial_id}")
    for row in ground.rows:
        if row.status not in _NO_EVIDENCE:
            known.setdefault(row.config_hash, f"row {row.exp_id}")
    told = set()
    for spec in standing.due.specs:
        if not spec.is_control and spec.config_hash in known and spec.condition not in told:
            told.add(spec.condition)
            what = f"{spec.condition} was tried: {known[spec.config_hash]}."
            yield Problem(f"{WHERE}: axis.values", what, action="Propose what was not tried.")


def _unproven(report: ComparabilityReport) -> Iterator[Problem]:
    """Yield what `rltune check` finds, warnings that no sweep file accepts included."""
    for one in (*report.errors, *report.warnings):
        if one.accepted_reason is None:
            yield Problem(f"{WHERE}: {one.code or one.rule}", one.message, action=one.remedy)


def _too_large(standing: Standing, base: Base, ground: Ground) -> Iterator[Problem]:
    """Yield which limit of the study its trials would go beyond, by the forecast of `plan`."""
    limits = ground.study.limits
    if not limits.is_any:
        return
    loaded, total = standing.loaded, used(ground.found)
    measured = measure(ground.runs_dir, loaded.run_name, base.source.loaded.spec.name)
    prices = prices_of(loaded, Path.cwd())
    costs = [trial_cost(x, measured, prices.get(x.condition)) for x in standing.due.specs]
    for text in _excess(costs, limits, total):
        action = "Propose fewer values, or raise the study's budget."
        yield Problem(f"{WHERE}: axis.values", f"its {len(costs)} trials {text}.", action=action)


def _excess(costs: list[TrialCost], limits: Limits, total: Used) -> Iterator[str]:
    if limits.seconds is not None:
        left = max(0.0, limits.seconds - total.seconds)
        known = [cost.wall_s for cost in costs if cost.wall_s is not None]
        if len(known) < len(costs):
            yield "need a time that no earlier run has measured"
        elif sum(known) > left:
            yield f"need {duration(sum(known))} by measured steps, and {duration(left)} are left"
    if limits.tokens is not None:
        most, tokens = sum(cost.max_tokens for cost in costs), limits.tokens - total.tokens
        if most > tokens:
            yield f"may generate {most:,} tokens, and {max(0, tokens):,} are left"
    if limits.amount is not None:
        usage = sum(
            (cost.expected or cost.service or ServiceUsage() for cost in costs), ServiceUsage()
        )
        paid = usage.paid.get(limits.currency)
        left = max(0.0, limits.amount - total.paid.get(limits.currency, 0.0))
        if paid is None:
            yield f"have no price in {limits.currency}"
        elif paid > left:
            cost, rest = money({limits.currency: paid}), money({limits.currency: left})
            yield f"cost {cost}, and {rest} are left"
