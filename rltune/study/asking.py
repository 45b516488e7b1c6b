"""Who is asked for a proposal: a language model, or a function of the user's."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rltune.errors import Problem, SpecError
from rltune.judge.budget import Usage
from rltune.judge.prompt import encodable
from rltune.judge.question import Answer, ask_service
from rltune.judge.settings import JudgeSettings
from rltune.spec.custom_code import refuse_paths
from rltune.spec.yamlfile import dump_yaml
from rltune.store.files import utc_now
from rltune.store.secret import without_secrets
from rltune.study.brief import brief_of, messages_of
from rltune.study.fence import Ground, review
from rltune.study.load import Study
from rltune.study.records import (
    ACCEPTED,
    REFUSED,
    UNANSWERED,
    accepted,
    append_call,
    append_proposal,
    read_asked,
    read_proposals,
)
from rltune.study.schema import Proposer, StudySweep
from rltune.trainer.tasks import add_to_path
from rltune_envs.errors import ImportPathError
from rltune_envs.imports import load_object


@dataclass(frozen=True, slots=True)
class Proposed:
    """One proposal and what became of it."""

    name: str  # of its sweep
    attempt: int  # which try it was, from 1
    outcome: str  # ACCEPTED, REFUSED or UNANSWERED
    problems: tuple[str, ...]  # why it was not accepted


def require_proposer(study: Study, base: Path, *, no_custom_code: bool) -> None:
    """Refuse a study whose proposer cannot be asked, before anything starts.

    Raises:
        InputError: Its function cannot be imported, or the client or the key is missing.

    """
    proposer = study.spec.proposer
    if proposer is None:
        return
    if proposer.function is None:
        _settings(proposer).require_ready()
        return
    where = f"{study.path}: proposer.function"
    if no_custom_code:
        refuse_paths([(where, proposer.function)])
    add_to_path(base)
    try:
        load_object(proposer.function)
    except ImportPathError as error:
        raise SpecError(Problem(where, f"{error}.")) from error


def may_propose(study: Study, runs_dir: Path) -> bool:
    """Return whether a study has a proposer with sweeps left."""
    proposer = study.spec.proposer
    return proposer is not None and len(accepted(read_proposals(study, runs_dir))) < proposer.sweeps


def propose(ground: Ground) -> Iterator[Proposed]:
    """Ask until a proposal is accepted, or `tries` were not; yields each once it is recorded.

    Args:
        ground: What proposals are judged on: a study with a proposer and a finished sweep.

    Raises:
        InputError: A language model cannot be asked: no client, or no key.

    """
    study, proposer = ground.study, ground.study.spec.proposer
    assert proposer is not None
    refused: list[Mapping[str, Any]] = []
    for attempt in range(1, proposer.tries + 1):
        before = read_proposals(study, ground.runs_dir)
        name = f"proposed-{len(accepted(before)) + 1}"
        brief = brief_of(ground, refused)
        answer = _ask(proposer, brief, ground)
        entry, outcome, problems = _reviewed(answer, name, ground)
        proposed = Proposed(name, attempt, outcome, problems)
        record = _record(proposed, proposer, brief, answer)
        if entry is not None:
            record |= {"source": entry.source, "question": entry.question}
        append_proposal(study, ground.runs_dir, record)
        yield proposed
        if entry is not None:
            return
        if outcome == REFUSED:
            refused.append(record)


def _record(
    one: Proposed, proposer: Proposer, brief: Mapping[str, Any], answer: Answer
) -> dict[str, Any]:
    """Return the record of a proposal but for what it is in the study."""
    return {
        "name": one.name,
        "try": one.attempt,
        "time": utc_now(),
        "proposer": proposer.name,
        "prompt_sha256": _digest(brief),
        "answer": without_secrets(answer.text),
        "calls": answer.usage.calls,
        "tokens": answer.usage.tokens,
        "outcome": one.outcome,
        "problems": list(one.problems),
    }


def _reviewed(
    answer: Answer, name: str, ground: Ground
) -> tuple[StudySweep | None, str, tuple[str, ...]]:
    """Return the place of a proposal in the study, its outcome, and why it is none."""
    if answer.problem:
        return None, UNANSWERED, (answer.problem,)
    try:
        return review(answer.text, name, ground), ACCEPTED, ()
    except SpecError as error:
        lines = tuple(without_secrets(line) for line in str(error).splitlines())
        return None, REFUSED, lines


def _ask(proposer: Proposer, brief: Mapping[str, Any], ground: Ground) -> Answer:
    if proposer.function is None:
        place = ground.study, ground.runs_dir
        log, usage = partial(append_call, *place), read_asked(*place)
        return ask_service(_settings(proposer), messages_of(brief), usage=usage, log=log)
    try:
        given = load_object(proposer.function)(json.loads(json.dumps(brief)))
        text = given if isinstance(given, str) else dump_yaml(given)
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        what = " ".join(f"{proposer.function} raised {type(error).__name__}: {error}".split())
        return Answer("", Usage(), without_secrets(what))
    return Answer(encodable(text), Usage())


def _settings(proposer: Proposer) -> JudgeSettings:
    return JudgeSettings(**proposer.service.model_dump(), section="proposer.llm")


def _digest(brief: Mapping[str, Any]) -> str:
    """Return the sha256 hex of all that a proposer was shown."""
    text = json.dumps(messages_of(brief), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
