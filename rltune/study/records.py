"""What was proposed in a study: a record of every answer, and the study with what was accepted.

A proposal that was accepted is one more sweep of the study. Its file is a copy of that of the sweep
it departs from, with another axis; all that is not the axis is held as it is there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rltune.analysis.verdict_words import Verdict
from rltune.errors import Problem, SpecError, StoreError
from rltune.judge.budget import Usage, usage_in
from rltune.spec.identity import flatten
from rltune.spec.keys import overlaps
from rltune.spec.shortforms import config_tree
from rltune.spec.yamlfile import read_yaml
from rltune.store.jsonl import append_jsonl, read_complete
from rltune.store.rundir import RunDir
from rltune.study.files import write_sweep
from rltune.study.load import Study, load_as_asked
from rltune.study.promotion import best_kept, put
from rltune.study.proposal import Proposal
from rltune.study.schema import StudySweep
from rltune.study.state import Standing

ACCEPTED, REFUSED, UNANSWERED = "accepted", "refused", "no answer"
"""What became of a proposal."""

PROPOSALS, CALLS = "proposals.jsonl", "proposer_calls.jsonl"
"""Files of a study's folder: a record of every answer, and of every call to a service."""

PROPOSED = "proposed"
"""Its folder of the sweeps that were proposed."""

_KEYS = ("name", "try", "outcome", "problems")  # of every record
_OF_ACCEPTED = ("source", "question")  # of one that is a sweep


@dataclass(frozen=True, slots=True)
class Base:
    """What a proposal departs from."""

    source: Standing  # a finished sweep
    config: Mapping[str, Any]  # of its best kept condition


def base_of(source: Standing, verdicts: Sequence[Verdict]) -> Base:
    """Return what a finished sweep hands on by its verdicts: its best condition, or its control."""
    label = best_kept(verdicts, source.loaded)
    return Base(source, next(x.config for x in source.loaded.conditions if x.label == label))


def read_proposals(study: Study, runs_dir: Path) -> tuple[Mapping[str, Any], ...]:
    """Return the records of a study's proposals, accepted or not, in the order of asking.

    Raises:
        StoreError: One cannot be read or lacks a key, or a name was given twice: were it skipped,
            its name would be given again.

    """
    path = _path(study.folder(runs_dir))
    records = read_complete(path)
    if problems := [*_incomplete(records)]:
        action = "Restore the file from a copy."
        raise StoreError([Problem(str(path), what, action=action) for what in problems])
    return records


def _incomplete(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield which records lack a key, and which names of sweeps were given twice."""
    for number, record in enumerate(records, start=1):
        keys = (*_KEYS, *(_OF_ACCEPTED if record.get("outcome") == ACCEPTED else ()))
        if missing := [key for key in keys if key not in record]:
            yield f"record {number} lacks {', '.join(missing)}."
    names = [record.get("name") for record in accepted(records)]
    yield from (
        f"{name} is accepted twice." for name in dict.fromkeys(names) if names.count(name) > 1
    )


def append_proposal(study: Study, runs_dir: Path, record: Mapping[str, object]) -> None:
    """Add the record of one proposal."""
    own = study.folder(runs_dir)
    own.path.mkdir(parents=True, exist_ok=True)
    append_jsonl(_path(own), record)


def _path(own: RunDir) -> Path:
    return own.path / PROPOSALS


def proposed_sweep(name: str) -> str:
    """Return the file of a proposed sweep in the study's folder, beside its source's configs."""
    return f"{PROPOSED}/{name}/sweeps/{name}.yaml"


def accepted(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the records of what was accepted."""
    return [one for one in records if one.get("outcome") == ACCEPTED]


def read_asked(study: Study, runs_dir: Path) -> Usage:
    """Return what a study has asked of its service so far, by the log of its calls.

    An answer is recorded once it is judged, and the command may be stopped before that.

    Raises:
        StoreError: A call cannot be read: were it skipped, it would not count.

    """
    return usage_in(read_complete(_calls(study.folder(runs_dir))))


def append_call(study: Study, runs_dir: Path, record: Mapping[str, object]) -> None:
    """Add the record of one call to the service, before its answer is judged."""
    append_jsonl(_calls(study.folder(runs_dir)), record)


def _calls(own: RunDir) -> Path:
    return own.path / CALLS


def with_proposals(study: Study, runs_dir: Path) -> Study:
    """Return a study with the sweeps that were proposed and accepted, after those of its file.

    Raises:
        SpecError: The file of one cannot be loaded any more.

    """
    for record in accepted(read_proposals(study, runs_dir)):
        if record["name"] in study.originals:
            continue
        path = study.folder(runs_dir).path / proposed_sweep(record["name"])
        entry = entry_of(study, record["name"], record["source"], record["question"], path)
        study = with_sweep(study, entry)
    return study


def entry_of(study: Study, name: str, source: str, question: str, file: Path) -> StudySweep:
    """Return the place of a proposed sweep: run as the one that it departs from, on its best."""
    like = next((one for one in study.spec.sweeps if one.name == source), None)
    if like is None:
        what = f"{name} departs from {source!r}, which is not a sweep of the study any more."
        raise SpecError(Problem(str(study.path), what, action="Restore it."))
    return StudySweep(
        name=name,
        file=str(file),
        question=question,
        profile=like.profile,
        seeds=like.seeds,
        set=like.set,
        control=f"best kept of {source}",
    )


def with_sweep(study: Study, entry: StudySweep) -> Study:
    """Return a study with one more sweep, loaded from its file; raises SpecError."""
    spec = study.spec.model_copy(update={"sweeps": (*study.spec.sweeps, entry)})
    originals = {**study.originals, entry.name: load_as_asked(Path(entry.file), entry)}
    return replace(study, spec=spec, originals=originals)


def write_proposed(
    study: Study, place: Path, name: str, proposal: Proposal, base: Base
) -> StudySweep:
    """Write the sweep file of a proposal and return its place in the study.

    Args:
        study: The study; it has a proposer.
        place: Folder that gets `proposed/NAME/sweeps/NAME.yaml`, and a link to the configs of its
            source beside it.
        name: Of the sweep.
        proposal: What was proposed.
        base: What it departs from.

    Raises:
        SpecError: The file of the source cannot be read any more.

    """
    source = base.source
    original = study.originals[source.sweep.name]
    file = read_yaml(original.path, kind="sweep file")
    if isinstance(file, Problem):
        raise SpecError(file)
    axis = proposal.axis
    data = {
        **{key: value for key, value in file.data.items() if key not in ("title", "parent")},
        "name": name,
        "question": proposal.question,
        "hypothesis": proposal.hypothesis,
        "specialist": study.spec.proposer.name if study.spec.proposer else "",
        "hold": _held(config_tree(file.data.get("hold") or {}), proposal, base),
        "axis": {
            "key": axis.key,
            "values": list(axis.values),
            "control": axis.control,
            "coupled": [one.model_dump() for one in axis.coupled],
            "expect": dict(axis.expect),
        },
    }
    path = place / proposed_sweep(name)
    head = f"{name} of the study {study.spec.name}, proposed after {source.sweep.name}."
    write_sweep(path, data, head=head, configs_of=original.path)
    return entry_of(study, name, source.sweep.name, proposal.question, path)


def _held(hold: dict[str, Any], proposal: Proposal, base: Base) -> dict[str, Any]:
    """Return what is held: that of the source, and what it moved or was given, as in its best."""
    source, best = base.source, flatten(base.config)
    given = source.promotion.keys if source.promotion is not None else {}
    flat = {key: best.get(key, value) for key, value in flatten(hold).items()}
    for key in (*given, *source.loaded.axis_keys, *source.loaded.coupled_keys):
        flat[key] = best.get(key)
    own = (proposal.axis.key, *(one.key for one in proposal.axis.coupled))
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        if key in best and not any(overlaps(key, other) for other in own):
            put(tree, key, list(value) if isinstance(value, tuple) else value)
    return tree
