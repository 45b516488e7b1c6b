"""What the keys of one env section must satisfy together, each with what to do instead."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rltune.spec.errors import Violation, refuse

if TYPE_CHECKING:
    from rltune.spec.schema.env import FrozenLakeConfig, MultihopQaConfig, SokobanConfig
    from rltune.spec.schema.env_verified import VerifiedConfig


def require_probability(value: object) -> object:
    """Return a value that can only be a probability; 1 could be 1 %, and 80 is a percentage."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value  # the type check says what is wrong
    if isinstance(value, int) and value == 1:
        what = "1 may mean 1 % or always."
        refuse([Violation("", what, "Write 1.0 for always, or 0.01 for 1 %.")])
    if value > 1:
        what = f"{value!r} looks like a percentage; this is a probability."
        action = f"Write {value / 100:g}." if value <= 100 else "Give a number from 0.0 to 1.0."
        refuse([Violation("", what, action)])
    return value


def require_distinct(items: object) -> object:
    """Return a list without repetition and with something in it; the elements are checked later."""
    if not isinstance(items, tuple | list):
        return items
    if not items:
        refuse([Violation("", "[] is empty.", "Give at least one.")])
    repeated = [item for i, item in enumerate(items) if item in items[:i]]
    if repeated:
        refuse([Violation("", f"{repeated[0]!r} is given twice.", "Remove the duplicate.")])
    return items


def sokoban_violations(env: "SokobanConfig") -> list[Violation]:
    """Return what a Sokoban section contradicts."""
    found = [*_limits(env), *_shown(env, ("observation", "symbols"))]
    hardest = env.max_actions if env.max_difficulty is None else env.max_difficulty
    found += _difficulty(env.min_difficulty, hardest, in_key="max_difficulty")
    room = (env.size - 2) ** 2 // 3
    if env.boxes > room:
        what = f"{env.boxes} boxes do not fit a room of {env.size} x {env.size} cells."
        found.append(Violation("boxes", what, f"Give at most {room}, or a larger env.size."))
    if env.levels is not None:
        found += unused(env, ("size", "boxes", "search_depth"), "env.levels names a file")
    return found


def frozen_lake_violations(env: "FrozenLakeConfig") -> list[Violation]:
    """Return what a FrozenLake section contradicts."""
    found = [*_limits(env), *_shown(env, ("observation",))]
    return [*found, *_difficulty(env.min_difficulty, env.max_actions, in_key="max_actions")]


def qa_violations(env: "MultihopQaConfig") -> list[Violation]:
    """Return what a multi-hop QA section contradicts."""
    found = []
    if env.max_searches >= env.max_turns:
        what = f"{env.max_searches} searches leave no turn of {env.max_turns} to answer in."
        action = f"Give at most {env.max_turns - 1}, or raise env.max_turns."
        found.append(Violation("max_searches", what, action))
    if env.questions is None:
        found += unused(env, ("file_format", "corpus"), "env.questions is null: the closed world")
    else:
        found += unused(env, ("world_seed", "passages", "hops", "kinds"), _OF_THE_CLOSED_WORLD)
    return [*found, *_eval_sets(env)]


def verified_violations(env: "VerifiedConfig") -> list[Violation]:
    """Return what a section of problems and a verifier contradicts."""
    kind, found = env.verifier.kind, list(_problem_sources(env))
    if env.answer_column is None and not env.verifier.is_custom:
        what = f"null leaves verifier {kind} nothing to compare with."
        found.append(Violation("answer_column", what, "Give the column of the answers."))
    if kind == "multiple_choice" and env.choices_column is None and env.source is None:
        what = "null leaves verifier multiple_choice without choices."
        found.append(Violation("choices_column", what, "Give the column with the list of choices."))
    if kind != "multiple_choice":
        found += unused(env, ("choices_column",), f"verifier {kind} does not read choices")
    shown = _DOUBLED.sub("", env.template)
    if env.answer_column is not None and f"{{{env.answer_column}}}" in shown:
        what = f"it shows {{{env.answer_column}}}, the answer."
        action = f"Leave it out, or write {{{{{env.answer_column}}}}} for the word in braces."
        found.append(Violation("template", what, action))
    if env.max_turns == 1:
        found += unused(env, ("feedback",), "env.max_turns is 1: the first response ends it")
    if env.source is not None:
        return found
    for key in ("heldout", "test"):
        if getattr(env, key) is not None:
            found += unused(env, (f"{key}_share",), f"env.{key} names a file")
    own = [key for key in ("heldout", "test") if getattr(env, key) is None]
    if (total := sum(getattr(env, f"{key}_share") for key in own)) >= 1:
        what = f"the shares add up to {total:g}: nothing is left to train on."
        found.append(Violation(f"{own[0]}_share", what, "Lower one of them."))
    return found


def _problem_sources(env: "VerifiedConfig") -> Iterator[Violation]:
    """Yield what files and a generator contradict."""
    if env.source is not None:
        keys = ("train", "heldout", "test", "heldout_share", "test_share", "id_column")
        yield from unused(env, (*keys, "answer_column"), "env.source generates the problems")
        if env.verifier.kind == "multiple_choice":
            what = "multiple_choice needs choices, which generated problems do not have."
            yield Violation("verifier.kind", what, "Choose reasoning_gym.")
        return
    if env.train is None:
        action = "Give a file of problems, or env.source: reasoning_gym:NAME."
        yield Violation("train", "null leaves no problems.", action)
    if env.arguments:
        what = f"{env.arguments!r} has no effect: env.source is null."
        yield Violation("arguments", what, "Leave it at {}.")
    if env.verifier.kind == "reasoning_gym":
        what = "reasoning_gym scores what a data set of env.source made, and env.source is null."
        yield Violation("verifier.kind", what, "Choose another, or give env.source.")


def _eval_sets(env: "MultihopQaConfig") -> Iterator[Violation]:
    """Yield what the named sets contradict."""
    if env.eval and env.questions is None:
        what = f"{', '.join(env.eval)} cannot be measured beside the closed world."
        yield Violation("eval", what, "Give env.questions a file to train on.")
    files = {env.questions: "env.questions"}
    for name, one in env.eval.items():
        key = f"env.eval.{name}"
        if not _SET_NAME.fullmatch(name) or name in _TAKEN:
            what = f"{name!r} cannot be the name of a set: it becomes part of metric names."
            action = f"Use letters, digits and _, and neither of {', '.join(_TAKEN)}."
            yield Violation("eval", what, action)
        if one.file in files:
            what = f"{one.file!r} is the file of {files[one.file]} too."
            yield Violation("eval", what, f"Give {key} a file of its own.")
        files.setdefault(one.file, key)
    if len(env.eval) > MAX_EVAL_SETS:
        yield Violation("eval", f"{len(env.eval)} sets.", f"Give at most {MAX_EVAL_SETS}.")


_DOUBLED = re.compile(r"\{\{[^{}]+\}\}")  # braces that a template writes
MAX_EVAL_SETS = 100
_SET_NAME = re.compile(r"[A-Za-z_]\w*")
_TAKEN = ("macro", "failure")  # parts of other metrics' names
_OF_THE_CLOSED_WORLD = "env.questions names a file, and this is of the closed world"


def _limits(env: "SokobanConfig | FrozenLakeConfig") -> Iterator[Violation]:
    """Yield what the episode limits of a grid game contradict."""
    reachable = env.max_turns * env.max_actions_per_turn
    if env.max_actions > reachable:
        what = (
            f"{env.max_actions} actions can never be reached in {env.max_turns} turns of "
            f"{env.max_actions_per_turn}."
        )
        yield Violation("max_actions", what, f"Give at most {reachable}.")
    if env.max_actions_per_turn > env.max_actions:
        what = f"{env.max_actions_per_turn} is more than env.max_actions, {env.max_actions}."
        yield Violation("max_actions_per_turn", what, f"Give at most {env.max_actions}.")


def _difficulty(least: int, most: int, *, in_key: str) -> Iterator[Violation]:
    if least > most:
        what = f"{least} actions at least and {most} at most leave no task."
        yield Violation("min_difficulty", what, f"Give at most {most}, or raise env.{in_key}.")


def _shown(env: "SokobanConfig | FrozenLakeConfig", keys: Sequence[str]) -> list[Violation]:
    return unused(env, keys, "env.prompt is compact") if env.prompt == "compact" else []


def unused(section: Any, keys: Sequence[str], why: str) -> list[Violation]:
    """Return the keys that have another value than their default although nothing reads them."""
    found = []
    for key in keys:
        value, default = getattr(section, key), type(section).model_fields[key].default
        if value != default:
            value, default = (list(v) if isinstance(v, tuple) else v for v in (value, default))
            what = f"{value!r} has no effect: {why}."
            found.append(Violation(key, what, f"Leave it at {default!r}."))
    return found
