"""Seeds until decided: which trials of a sweep are due, and the look after each block of them.

Everything follows from the trials' files and looks.jsonl, so a driver that dies anywhere is
followed by one that takes the same looks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rltune.analysis.ends import End, end_of, pairs_of
from rltune.analysis.looks import NextSeeds, looks_taken, next_seeds
from rltune.analysis.rates import resolution_of
from rltune.analysis.verdict_words import LEVEL
from rltune.errors import Problem, StoreError
from rltune.maths.sequential import Decision
from rltune.spec.expand import expand
from rltune.spec.load import LoadedSweep
from rltune.store.files import utc_now
from rltune.store.looks import LookRecord, append_looks, first_looks, read_looks
from rltune.store.run_folder import planned_looks, read_record
from rltune.store.rundir import RunDir
from rltune.types import SeedPlan, TrialSpec


@dataclass(frozen=True, slots=True)
class Due:
    """What a sweep has planned by now.

    Attributes:
        specs: The trials that are planned, in the order to run.
        wanted: Ids of those that may still be run: one that failed is not run again once its
            condition is decided.
        looks_follow: Whether a look is still to be taken, once its trials have ended.

    """

    specs: tuple[TrialSpec, ...]
    wanted: frozenset[str]
    looks_follow: bool


def require_same_looks(run: RunDir, loaded: LoadedSweep) -> None:
    """Refuse other looks, or other seeds, than those that a run folder has begun with.

    The error is spent over the looks as they were planned. Raises StoreError.
    """
    taken = read_looks(run.looks)
    if not taken:
        return
    why = "Looks that were taken have spent their error, so the plan cannot change."
    action = "Give the same, or start over in another --runs-dir."
    before = planned_looks(run)
    if before != loaded.until:
        what = f"its looks are planned as {_words(before)}, and {_words(loaded.until)} was asked"
        raise StoreError(Problem(str(run.path), f"{what} for.", why, action))
    for look in taken:
        asked = loaded.seeds[: look.planned]
        if not set(look.seeds) <= set(asked):
            what = f"a look at {look.planned} seeds counted {_seeds(look.seeds)}, and "
            what += f"{_seeds(asked)} were asked for."
            raise StoreError(Problem(str(run.path), what, why, action))


def _seeds(seeds: Sequence[int]) -> str:
    return f"seeds {', '.join(map(str, seeds))}"


def _words(plan: SeedPlan | None) -> str:
    if plan is None:
        return "a list of seeds"
    effect = f", effect {plan.effect:g}" if plan.effect else ""
    return f"{plan.start} to {plan.most} seeds by {plan.block}{effect}"


def due_trials(run: RunDir, loaded: LoadedSweep) -> Due:
    """Return the trials that are planned by now: all of them where the seeds are listed."""
    specs = expand(loaded)
    if loaded.until is None:
        return Due(specs, frozenset(spec.trial_id for spec in specs), looks_follow=False)
    need = _next(run, loaded, loaded.until, _groups(run, loaded, specs))
    rank = {seed: i for i, seed in enumerate(loaded.seeds)}
    due = [
        spec
        for spec in specs
        if rank[spec.seed] < need.seeds[spec.condition] or run.trial(spec.trial_id).spec.is_file()
    ]
    looking = need.is_open | ({loaded.control.label} if need.is_open else set())
    wanted = frozenset(spec.trial_id for spec in due if spec.condition in looking)
    return Due(tuple(due), wanted, looks_follow=bool(need.is_open))


def take_looks(
    run: RunDir, loaded: LoadedSweep, *, launch: str, say: Callable[[str], None]
) -> tuple[LookRecord, ...]:
    """Look at every open condition whose block has ended; record, say and return these looks."""
    if loaded.until is None:
        return ()
    groups = _groups(run, loaded, expand(loaded))
    need = _next(run, loaded, loaded.until, groups)
    looks = []
    for label in (one.label for one in loaded.conditions if one.label in need.is_open):
        asked = set(loaded.seeds[: need.seeds[label]])
        ours = [end for end in groups[label] if end.seed in asked]
        theirs = [end for end in groups[loaded.control.label] if end.seed in asked]
        if all(end.status.has_ended for end in (*ours, *theirs)) and len(ours) == len(asked):
            looks.append(_look(loaded, ours, theirs, planned=len(asked), launch=launch))
    append_looks(run.looks, looks)
    for look in looks:
        say(_text(look, loaded.until))
    return tuple(looks)


def _look(
    loaded: LoadedSweep,
    ours: Sequence[End],
    theirs: Sequence[End],
    *,
    planned: int,
    launch: str,
) -> LookRecord:
    plan, conditions = loaded.until, len(loaded.conditions) - 1
    assert plan is not None
    seeds = list(pairs_of(ours, theirs))
    counted = [
        replace(end, look=planned) if end.look is None and end.seed in seeds else end
        for end in ours
    ]
    tasks = int(loaded.control.config["gate"]["tasks"])
    looks = looks_taken(
        counted,
        theirs,
        plan,
        level=LEVEL / conditions,
        resolution=resolution_of(loaded.spec.metric.name, tasks=tasks),
    )
    is_new = any(end.look == planned for end in counted)
    last = looks[-1] if looks and is_new else None  # nothing new to count: no look
    return LookRecord(
        time=utc_now(),
        launch=launch,
        condition=ours[0].condition,
        planned=planned,
        seeds=seeds,
        mean=last.mean if last else None,
        low=last.interval.low if last and last.interval else None,
        high=last.interval.high if last and last.interval else None,
        p=last.p if last else None,
        boundary=last.boundary if last else None,
        decision=(last.decision if last else Decision.GO_ON).value,
    )


def _next(
    run: RunDir, loaded: LoadedSweep, plan: SeedPlan, groups: Mapping[str, Sequence[End]]
) -> NextSeeds:
    looked: dict[str, int] = {}
    decided: dict[str, Decision] = {}
    for look in read_looks(run.looks):
        looked[look.condition] = max(look.planned, looked.get(look.condition, 0))
        if look.decision != Decision.GO_ON:
            decided[look.condition] = Decision(look.decision)
    return next_seeds(groups, loaded.control.label, plan, looked, decided)


def _groups(run: RunDir, loaded: LoadedSweep, specs: Sequence[TrialSpec]) -> dict[str, list[End]]:
    """Return condition -> how its trials ended, of those that have begun."""
    first = first_looks(read_looks(run.looks))
    groups: dict[str, list[End]] = {one.label: [] for one in loaded.conditions}
    for spec in specs:
        trial = run.trial(spec.trial_id)
        if trial.path.is_dir():
            end = end_of(read_record(trial, spec, []))
            look = first.get((spec.condition, spec.seed))
            groups[spec.condition].append(replace(end, until=loaded.until, look=look))
    return groups


def _text(look: LookRecord, plan: SeedPlan) -> str:
    """Return one look in a line."""
    n = len(look.seeds)
    head = f"{look.condition}: look at {n} of at most {plan.most} seeds: {look.decision}"
    if look.mean is None or look.p is None or look.boundary is None:
        return f"{head} (too few new pairs to test)"
    numbers = f"difference {look.mean:+.3g}"
    if look.low is not None and look.high is not None:
        numbers += f", adjusted interval {look.low:+.3g} to {look.high:+.3g}"
    return f"{head} ({numbers}, p = {look.p:.2g}, boundary {look.boundary:.2g})"
