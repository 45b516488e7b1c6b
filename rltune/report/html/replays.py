"""The episodes that a page replays: a success and a failure of each condition, early and late."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rltune.report.html.rebuild import rebuilt
from rltune.store.files import loads
from rltune.store.jsonl import read_jsonl
from rltune.store.run_folder import SweepFolder
from rltune.store.rundir import TrialDir
from rltune.types import TrialSpec


@dataclass(frozen=True, slots=True)
class ReplayTurn:
    """One turn of a replay."""

    observation: str  # what the policy read; empty where it is not known
    given: str  # what its response was given to begin with
    tokens: tuple[str, ...]  # what it sampled, token by token; one text where tokens are not known
    # advantage of each token; None where it was not trained on, or is not known
    credit: tuple[float, ...] | None
    n_tokens: int  # tokens sampled, those that are not shown included; 0 where it is not known
    actions: tuple[str, ...]  # what was executed
    reward: float  # of the turn
    is_valid: bool  # whether all of the response could be read
    n_over_limit: int  # actions that were not executed because of a limit


@dataclass(frozen=True, slots=True)
class Replay:
    """One training episode."""

    spec: TrialSpec  # the trial
    step: int  # its training step
    task_id: str  # what was played
    group: int  # index of its prompt in the step
    member: int  # index in its group
    kept: bool  # whether the rollout filter kept it
    success: bool  # whether it is one
    reward: float  # of the episode
    failure_class: str  # why it is no success
    turns: tuple[ReplayTurn, ...]  # its turns
    closing: str  # what the environment showed at the end; empty where it is not known
    is_recorded: bool  # whether replays.jsonl holds it; else it was played again from its responses


def replays_of(folder: SweepFolder) -> tuple[Replay, ...]:
    """Return the replays of all conditions in the order of the plan.

    Of each: one success and one failure at its first recorded step and at its last, of the first
    seed that has it; where neither step has an outcome, one from another step.
    """
    groups: dict[str, list[TrialSpec]] = {}
    for spec in folder.specs:
        groups.setdefault(spec.condition, []).append(spec)
    return tuple(replay for group in groups.values() for replay in _of_condition(folder, group))


def _of_condition(folder: SweepFolder, specs: Sequence[TrialSpec]) -> list[Replay]:
    trials = [(spec, folder.run.trial(spec.trial_id)) for spec in specs]
    recorded = [
        replay
        for spec, trial in trials
        for row in read_jsonl(trial.replays).rows
        if (replay := _recorded(spec, row)) is not None
    ]
    if recorded:
        return choose(recorded)
    for spec, trial in trials:  # of a folder that keeps no replays
        rows = list(_first_and_last(trial))
        if rows:
            return choose([_played_again(spec, *pair) for pair in rebuilt(spec, rows)])
    return []


def choose(replays: Sequence[Replay]) -> list[Replay]:
    """Return a success and a failure at the first step and at the last, as far as there are any."""
    steps = sorted({replay.step for replay in replays})
    chosen: list[Replay] = []
    for step in dict.fromkeys((steps[0], steps[-1])):
        for success in (True, False):
            chosen += [r for r in replays if r.step == step and r.success is success][:1]
    for success in (True, False):
        if not any(replay.success is success for replay in chosen):
            chosen += [replay for replay in replays if replay.success is success][:1]
    return sorted(chosen, key=lambda replay: (replay.step, not replay.success))


def _recorded(spec: TrialSpec, row: Mapping[str, Any]) -> Replay | None:
    """Return a line of replays.jsonl; None for one of another version."""
    try:
        turns = [
            _turn(
                turn,
                observation=turn["observation"],
                given=turn["given"],
                tokens=tuple(turn["tokens"]),
                credit=None if turn["credit"] is None else tuple(turn["credit"]),
                n_tokens=turn["n_tokens"],
            )
            for turn in row["turns"]
        ]
        return _replay(spec, row, turns, row["closing"], is_recorded=True)
    except (KeyError, TypeError):
        return None


def _played_again(spec: TrialSpec, row: Mapping[str, Any], seen: Sequence[str]) -> Replay:
    """Return a line of episodes.jsonl with what was seen before each turn and at the end."""
    turns = [
        _turn(turn, observation=text, given="", tokens=(turn["response"],), credit=None, n_tokens=0)
        for turn, text in zip(row["turns"], seen[:-1], strict=True)
    ]
    return _replay(spec, row, turns, seen[-1], is_recorded=False)


def _turn(turn: Mapping[str, Any], **shown: Any) -> ReplayTurn:
    known = {name: turn[name] for name in ("reward", "is_valid", "n_over_limit")}
    return ReplayTurn(actions=tuple(turn["actions"]), **known, **shown)


def _replay(
    spec: TrialSpec,
    row: Mapping[str, Any],
    turns: Sequence[ReplayTurn],
    closing: str,
    *,
    is_recorded: bool,
) -> Replay:
    names = ("step", "task_id", "group", "member", "kept", "success", "reward", "failure_class")
    known = {name: row[name] for name in names}
    return Replay(spec, **known, turns=tuple(turns), closing=closing, is_recorded=is_recorded)


def _first_and_last(trial: TrialDir) -> Iterator[Mapping[str, Any]]:
    """Yield the first success and failure of the first step and of the last in episodes.jsonl."""
    first: dict[bool, Mapping[str, Any]] = {}
    last: dict[bool, Mapping[str, Any]] = {}
    start = step = None
    for row in _lines(trial):
        start = row["step"] if start is None else start
        if row["step"] != step:
            step, last = row["step"], {}
        if row["step"] == start:
            first.setdefault(row["success"], row)
        last.setdefault(row["success"], row)
    yield from first.values()
    if step != start:
        yield from last.values()


def _lines(trial: TrialDir) -> Iterable[Mapping[str, Any]]:
    """Yield the episodes that count, one at a time: the file of a long trial is large."""
    if not trial.episodes.is_file():
        return
    with trial.episodes.open("rb") as file:
        for line in file:
            try:
                row = loads(line)
                if row["turns"] and not row["fault"]:
                    yield row
            except (ValueError, KeyError, TypeError):
                continue  # a torn line; `rltune audit` counts what is wrong with a folder
