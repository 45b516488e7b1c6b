"""A check before step 1 that policy and environment understand each other.

A prompt that fills the context, a tag that the tokenizer cannot write, a response limit below the
shortest valid answer: a trial with one of these ends as "done, 0.000" after all its steps.
"""

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from rltune.errors import InputError, Problem
from rltune.policy.load import Policy
from rltune.spec.schema.rollout import RolloutConfig
from rltune.trainer.preflight.answer_room import no_room_problem
from rltune_envs.base import Task, TextEnv
from rltune_envs.errors import CustomCodeError, HungCodeError, SearchLimitError
from rltune_envs.protocols import (
    HasGoldResponse,
    HasRandomPlayer,
    HasShortestResponses,
    HasSymbols,
    supports,
)
from rltune_envs.splits import Manifest

T = TypeVar("T")

LOOKED_AT = 256  # training tasks whose first prompts are measured, the first of the split
_NAMED = 5  # tasks that a line names
_UNSPELT = (
    "the environment names no valid response (shortest_responses, random_actions or gold_response),"
    " so nobody knows before training whether the policy can write one."
)
_TAG = re.compile(r"</?\w+>")


@dataclass(frozen=True, slots=True)
class _Shown:
    """A task as the policy is first shown it."""

    task: Task
    observation: str
    ids: tuple[int, ...]


def require_learnable(
    policy: Policy,
    rollout: RolloutConfig,
    manifest: Manifest,
    env: TextEnv,
    *,
    warn: Callable[[str], None],
) -> None:
    """Refuse a policy that cannot say, or be shown, what the environment is about.

    All held-out tasks and the first `LOOKED_AT` training tasks are looked at; `env` is played with.
    `warn` is called with what holds for some tasks only.

    Raises:
        InputError: Names every problem.

    """
    splits = {
        "held-out": _shown(policy, manifest.heldout, env),
        "training": _shown(policy, manifest.train[:LOOKED_AT], env),
    }
    nothing: tuple[str, ...] = ()
    answers = _asked(partial(_shortest, env), nothing)
    shortest = min((len(_ids(policy, env, answer)) for answer in answers), default=1)
    responses = answers or _asked(partial(_example, env, manifest.heldout[0]), nothing)
    problems = [
        *_spelling_problems(policy, env, manifest.heldout[0], responses),
        *_symbol_problems(policy, _asked(partial(_symbols, env), "")),
        *_response_problems(rollout, answers, shortest),
        *_context_problems(rollout, shortest, splits.values()),
    ]
    if problems:
        raise InputError(list(dict.fromkeys(problems)))
    if not _can_show(env):
        warn(_UNSPELT)
    for name, shown in splits.items():
        whose = f"{len(shown)} {name} tasks"
        for line in (
            _too_long_line(rollout, shortest, shown, whose),
            _unknown_line(policy, shown, whose),
            _alike_line(shown, whose),
        ):
            if line:
                warn(line)


def _shown(policy: Policy, tasks: Sequence[Task], env: TextEnv) -> list[_Shown]:
    """Return the first prompts; without those of tasks that the environment fails to start."""
    shown = []
    for task in tasks:
        try:
            text = env.reset(seed=task.seed)
        except HungCodeError:
            break
        except CustomCodeError:  # counted where the task is played
            continue
        ids = policy.renderer.first(env.system_prompt, text, env.response_prefix)
        shown.append(_Shown(task, text, tuple(ids)))
    return shown


def _ids(policy: Policy, env: TextEnv, response: str) -> list[int]:
    """Return ids that a policy can sample to give a response."""
    return policy.renderer.written(response.removeprefix(env.response_prefix))


def _asked(ask: Callable[[], T], default: T) -> T:
    """Return what an environment says of itself; the default where its code fails or gives up."""
    try:
        return ask()
    except (CustomCodeError, SearchLimitError):
        return default


def _spelling_problems(
    policy: Policy, env: TextEnv, task: Task, responses: Sequence[str]
) -> Iterator[Problem]:
    """Yield the responses that do not come back from the tokenizer as they were meant."""
    lost: dict[str, tuple[str, str]] = {}
    for response in responses:
        ids = _ids(policy, env, response)
        ends = [id for id in ids[:-1] if id in policy.end_ids]
        if ends:
            yield Problem(
                "policy.model",
                f"its end token {policy.tokenizer.decode(ends[:1])!r} stands inside {response!r}: "
                "every such response is cut there.",
                action="Use a model with another end token.",
            )
            return
        read = env.response_prefix + policy.renderer.decode(ids)
        if read != response and not _means_the_same(env, task, response, read):
            gone = [tag for tag in _TAG.findall(response) if tag not in read]
            lost = dict.fromkeys(gone or [response], (response, read)) | lost
    if lost:
        response, read = next(iter(lost.values()))
        yield Problem(
            "policy.model",
            f"its tokenizer cannot write {_listed(list(lost))}: {response!r} comes back as "
            f"{read!r}, which the environment reads as something else.",
            action="Use a model whose tokenizer keeps these texts apart from its end and padding "
            "tokens.",
        )


def _shortest(env: TextEnv) -> tuple[str, ...]:
    return env.shortest_responses() if supports(env, HasShortestResponses) else ()


def _symbols(env: TextEnv) -> str:
    return env.cell_symbols() if supports(env, HasSymbols) else ""


def _example(env: TextEnv, task: Task) -> tuple[str, ...]:
    """Return what the random player says first; without one, what is right to say."""
    env.reset(seed=task.seed)
    if supports(env, HasRandomPlayer):
        return (env.format_response(env.random_actions(random.Random(0))),)
    if supports(env, HasGoldResponse) and (gold := env.gold_response()):
        return tuple(env.response_prefix + text for text in gold.texts)
    return ()


def _can_show(env: TextEnv) -> bool:
    """Return whether the environment knows any valid response."""
    return any(
        supports(env, protocol)
        for protocol in (HasShortestResponses, HasRandomPlayer, HasGoldResponse)
    )


def _means_the_same(env: TextEnv, task: Task, response: str, read: str) -> bool:
    """Return whether the environment does the same with both; true where it understands neither."""
    try:
        meant, done = (_outcome(env, task, text) for text in (response, read))
    except CustomCodeError:  # counted where the task is played
        return True
    return meant == done or not meant[0]


def _outcome(env: TextEnv, task: Task, response: str) -> tuple[bool, tuple[str, ...]]:
    env.reset(seed=task.seed)
    step = env.step(response)
    return step.is_valid, step.actions


def _symbol_problems(policy: Policy, symbols: str) -> Iterator[Problem]:
    """Yield the symbols of the board that are no tokens of their own."""
    nothing = _observed(policy, "")
    seen: dict[tuple[int, ...], str] = {}
    unknown, alike = [], []
    for symbol in symbols:
        ids = _observed(policy, symbol)
        if ids == nothing or _n_unknown(policy, ids) > _n_unknown(policy, nothing):
            unknown.append(symbol)
        elif seen.setdefault(ids, symbol) != symbol:
            alike.append(f"{seen[ids]!r} and {symbol!r}")
    action = "Use another model, or another env.symbols or env.observation."
    if unknown:
        what = f"its tokenizer does not know the symbols of the board {_listed(unknown)}."
        yield Problem("policy.model", what, action=action)
    if alike:
        what = f"its tokenizer writes different symbols of the board alike: {', '.join(alike)}."
        yield Problem("policy.model", what, action=action)


def _observed(policy: Policy, text: str) -> tuple[int, ...]:
    return tuple(policy.renderer.following(text, "", is_ended=True))


def _n_unknown(policy: Policy, ids: Sequence[int]) -> int:
    """Return how many tokens stand for text that could not be written."""
    unknown = policy.tokenizer.unk_token_id
    return 0 if unknown is None or unknown in policy.end_ids else list(ids).count(unknown)


def _response_problems(
    rollout: RolloutConfig, answers: Sequence[str], shortest: int
) -> Iterator[Problem]:
    """Yield whether every valid answer is longer than a response may be."""
    limit, where = rollout.max_response_tokens, "rollout.max_response_tokens"
    if shortest > limit:
        yield no_room_problem(where, min(answers, key=len), shortest, limit)


def _context_problems(
    rollout: RolloutConfig, shortest: int, splits: Iterable[Sequence[_Shown]]
) -> Iterator[Problem]:
    """Yield whether no task of a split leaves room for an answer."""
    for shown in splits:
        if not shown or len(_too_long(rollout, shortest, shown)) < len(shown):
            continue
        n = min(len(one.ids) for one in shown)
        answer = "" if n >= rollout.max_context else f" and the shortest valid answer {shortest}"
        what = (
            f"the first prompt has {n} tokens{answer}, rollout.max_context is "
            f"{rollout.max_context}: no episode would get a valid answer."
        )
        action = f"Raise it to {n + shortest} at least."
        yield Problem("rollout.max_context", what, action=action)
        return


def _too_long(rollout: RolloutConfig, shortest: int, shown: Sequence[_Shown]) -> list[_Shown]:
    """Return the tasks whose first prompt leaves no room for an answer."""
    return [one for one in shown if len(one.ids) + shortest > rollout.max_context]


def _too_long_line(
    rollout: RolloutConfig, shortest: int, shown: Sequence[_Shown], whose: str
) -> str:
    long = _too_long(rollout, shortest, shown)
    if not long:
        return ""
    need = max(len(one.ids) for one in long) + shortest
    return (
        f"rollout.max_context is {rollout.max_context}: {len(long)} of {whose} have a first prompt "
        f"that leaves no room for an answer, and can only fail ({_names(long)}). Raise it to "
        f"{need}, or take these tasks out."
    )


def _unknown_line(policy: Policy, shown: Sequence[_Shown], whose: str) -> str:
    """Return which tasks hold text that the tokenizer does not know."""
    affected = [one for one in shown if _n_unknown(policy, one.ids)]
    if not affected:
        return ""
    words = dict.fromkeys(word for one in affected for word in one.observation.split())
    unknown = [word for word in words if _n_unknown(policy, policy.renderer.written(word))]
    examples = f", such as {_listed(unknown)}" if unknown else ""
    return (
        f"policy.model: {len(affected)} of {whose} hold text that the tokenizer does not know"
        f"{examples} ({_names(affected)})."
    )


def _alike_line(shown: Sequence[_Shown], whose: str) -> str:
    """Return which tasks are different texts and the same tokens."""
    first: dict[tuple[int, ...], _Shown] = {}
    twins = [one for one in shown if first.setdefault(one.ids, one).observation != one.observation]
    if not twins:
        return ""
    pair = f"{first[twins[0].ids].task.task_id} and {twins[0].task.task_id}"
    return f"policy.model: the tokenizer shows {len(twins)} of {whose} like another one: {pair}."


def _names(shown: Sequence[_Shown]) -> str:
    return _listed([one.task.task_id for one in shown], quote=str)


def _listed(texts: Sequence[str], quote: Callable[[str], str] = repr) -> str:
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return ", ".join(map(quote, texts[:_NAMED])) + more
