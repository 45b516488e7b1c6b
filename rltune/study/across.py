"""What the sweeps of a study are beside each other: under which protocol, and what they repeat."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rltune.comparability.findings import Finding, Severity, accept
from rltune.comparability.protocol import disagreements, link_findings
from rltune.errors import Problem, SpecError
from rltune.spec.load import LoadedSweep
from rltune.study.load import Study
from rltune.study.state import Standing


@dataclass(frozen=True, slots=True)
class Repeated:
    """Trials of a condition whose configs are those of trials of a sweep above."""

    sweep: str  # name in the study
    condition: str  # its label
    first: str  # name of the sweep above
    first_condition: str
    seeds: tuple[int, ...]  # of the trials


def findings_across(study: Study, found: Sequence[Standing]) -> tuple[Finding, ...]:
    """Return S9 over the sweeps of a study, as they run now.

    Sweeps of one protocol agree on every key that it does not free (an error else). Of others, each
    is set beside the sweep whose best it holds, else beside the first: they share a lineage, and
    all that neither moves should be equal in both (a warning else, which its place in the study
    file may accept with a reason).
    """
    own = {one.sweep.name: _named(study, one) for one in found}
    links: list[Finding] = []
    for one in found[1:]:
        source = one.sweep.source
        above = own[source or found[0].sweep.name]
        differing = link_findings(above, own[one.sweep.name], holds_best=bool(source))
        links += accept(tuple(differing), one.sweep.accept)
    return (*disagreements(list(own.values())), *links)


def require_agreement(study: Study, found: Sequence[Standing]) -> None:
    """Refuse a study two sweeps of which contradict their protocol.

    Raises:
        SpecError: Carries what S9 found.

    """
    wrong = [one for one in findings_across(study, found) if one.severity is Severity.ERROR]
    if wrong:
        raise SpecError([Problem(f"{study.path}: S9", x.message, action=x.remedy) for x in wrong])


def _named(study: Study, one: Standing) -> LoadedSweep:
    """Return a sweep as it runs, under the path that a person knows it by."""
    return replace(one.loaded, path=study.originals[one.sweep.name].path)


def repeated(found: Sequence[Standing]) -> Iterator[Repeated]:
    """Yield the trials that more than one sweep trains, by condition and sweep above."""
    first: dict[str, tuple[str, str]] = {}
    for one in found:
        groups: dict[tuple[str, str, str], list[int]] = {}
        for spec in one.due.specs:
            sweep, condition = first.setdefault(spec.config_hash, (one.sweep.name, spec.condition))
            if sweep != one.sweep.name:
                groups.setdefault((spec.condition, sweep, condition), []).append(spec.seed)
        for (own, sweep, condition), seeds in groups.items():
            yield Repeated(one.sweep.name, own, sweep, condition, tuple(seeds))
