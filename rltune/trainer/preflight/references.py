"""Checks of what a config refers to, before anything starts: files, classes, scores."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rltune.errors import InputError, Problem, SpecError
from rltune.gate import MACRO, SET_MEASURES
from rltune.judge.client import LlmJudge
from rltune.spec.custom_code import refuse_custom_code
from rltune.spec.identity import canonical_json
from rltune.spec.keys import did_you_mean
from rltune.spec.load import LoadedSweep
from rltune.spec.schema.attribution import AdcaConfig
from rltune.spec.schema.env import Env, MultihopQaConfig
from rltune.spec.schema.trial import TrialConfig
from rltune.store.secret import is_secret
from rltune.trainer.custom_env import naming_custom_env
from rltune.trainer.preflight.answer_room import answer_problems
from rltune.trainer.preflight.models import model_problems
from rltune.trainer.preflight.prices import price_problems
from rltune.trainer.preflight.tensor_parallel import parallel_problems
from rltune.trainer.tasks import ENVS, add_to_path, env_maker, files_of
from rltune_envs.base import TextEnv
from rltune_envs.errors import CustomCodeError, EnvError, ImportPathError
from rltune_envs.imports import load_object
from rltune_envs.protocols import (
    HasDistance,
    HasEvalSets,
    HasGoldResponse,
    HasParts,
    methods_of,
    supports,
)

GATE_METRICS = ("success_rate", "reward_mean", "turns", "invalid_action_rate", "fault_count")
"""Names of the measures of every env; an env's own ones must be others."""

_OF_A_STEP = (
    *("in_group_reward_std", "filter_kept_ratio", "filter_zero_count", "over_limit_actions"),
    *("task_hash", "task_digests", "sampled_hash", "empty_after_filter"),
    *("clip_ratio", "context_clip_ratio", "out_of_context_ratio"),
)
_ASKED: Mapping[str, tuple[type, ...]] = {
    "solver": (HasDistance,),
    "gold": (HasDistance, HasGoldResponse),
    "info_gain": (HasGoldResponse,),
}
"""Judge of attribution adca, or other attribution -> protocols that it needs of an env."""

_RESERVED = frozenset({*GATE_METRICS, *_OF_A_STEP})


def require_usable(loaded: LoadedSweep, base: Path, *, no_custom_code: bool = False) -> None:
    """Refuse a sweep that names what cannot be used; paths and import paths refer to `base`.

    With `no_custom_code` import paths are refused, and none is imported.

    Raises:
        SpecError: Carries every problem.

    """
    if no_custom_code:
        refuse_custom_code(loaded)
    _require_no_secrets(loaded)
    problems = list(dict.fromkeys(preflight(loaded, base)))
    if problems := problems or list(dict.fromkeys(answer_problems(loaded, base))):
        raise SpecError(problems)


def _require_no_secrets(loaded: LoadedSweep) -> None:
    """Refuse a key or a password in a config: every record of every trial would hold it."""
    configs = (condition.config for condition in loaded.conditions)
    texts = dict.fromkeys(pair for config in configs for pair in _texts(config))  # most are in all
    what = "this is a key or a password, and a config is written to many files."
    action = "Take it out, and read it from an environment variable where it is used."
    keys = dict.fromkeys(key for key, text in texts if is_secret(key, text))
    if keys:
        raise SpecError([Problem(loaded.where(key), what, action=action) for key in keys])


def _texts(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text of a plain config with its dotted key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping | list | tuple):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, inner in items:
            yield from _texts(inner, f"{key}.{name}" if key else str(name))


def require_judge(loaded: LoadedSweep) -> None:
    """Refuse to start a sweep whose language-model judge cannot be asked from here.

    Not a part of `require_usable`: a sweep can be checked and planned where there is no key.

    Raises:
        SpecError: The client is not installed, or the key is not set.

    """
    if problems := list(dict.fromkeys(_judge_problems(loaded))):
        raise SpecError(problems)


def preflight(loaded: LoadedSweep, base: Path) -> Iterator[Problem]:
    """Yield what a sweep names and cannot be used: a file, an import path, a score, a metric.

    A shipped env is imported only where it has a say: the schema knows its keys, and a check is to
    take no second. What tasks it has is found out when they are frozen; rows of files are read.
    """
    yield from model_problems(loaded, base)
    yield from price_problems(loaded, base)
    yield from parallel_problems(loaded)
    yield from _estimator_problems(loaded, base)
    sections = {
        canonical_json({key: condition.config[key] for key in ("env", "reward")}): condition.config
        for condition in loaded.conditions
    }
    for plain in sections.values():
        config = TrialConfig.model_validate(plain)
        missing = [
            Problem(
                loaded.where(f"env.{key}"),
                f"{_named_file(config.env, key)!r} is not a file.",
                action=f"Give a path that is relative to {base}, or absolute.",
            )
            for key, path in files_of(config.env, base).items()
            if not path.is_file()
        ]
        yield from missing
        is_plain = config.env.kind in {*ENVS} - {"verified"} and config.reward is None
        if not missing and not (is_plain and _asked(loaded) in GATE_METRICS):
            with naming_custom_env(config.env):
                yield from _env_problems(config, loaded, base)


def _named_file(env: Env, key: str) -> str:
    """Return the file that a key of `files_of` names, as the config has it."""
    if isinstance(env, MultihopQaConfig) and key.startswith("eval."):
        return env.eval[key.removeprefix("eval.")].file
    return str(getattr(env, key))


def _asked(loaded: LoadedSweep) -> str:
    return loaded.spec.metric.name.removeprefix("heldout/")


def _env_problems(config: TrialConfig, loaded: LoadedSweep, base: Path) -> Iterator[Problem]:
    """Yield why no environment can be made, or why it does not fit the sweep."""
    terms = config.reward.terms if config.reward else ()
    custom = [term.score for term in terms if ":" in term.score]
    bad = list(_import_problems(custom, loaded.where("reward.terms"), base))
    yield from bad
    where = loaded.where("env.factory" if config.env.kind == "custom" else "env")
    try:
        made = env_maker(config.env, None, base)()
    except ImportPathError as error:
        is_verifier = config.env.kind == "verified"
        yield Problem(loaded.where("env.verifier.kind") if is_verifier else where, _sentence(error))
        return
    except CustomCodeError as error:
        is_refusal = isinstance(error.__cause__, EnvError | ValueError)
        reason = _sentence(error.__cause__ if is_refusal else error.cause)
        yield Problem(where, f"no environment can be made: {reason}")
        return
    except (EnvError, ValueError) as error:  # a shipped one refuses its arguments
        yield Problem(where, f"no environment can be made: {_sentence(error)}")
        return
    yield from _row_problems(made, loaded)
    yield from _probe_problems(made, loaded)
    if bad:
        return
    try:
        env = env_maker(config.env, config.reward, base)()
    except ValueError as error:  # a score that the env does not measure
        yield Problem(loaded.where("reward.terms"), _sentence(error))
        return
    yield from _measure_problems(env, loaded)


def _row_problems(env: TextEnv, loaded: LoadedSweep) -> Iterator[Problem]:
    """Yield why the files of an env cannot be used."""
    try:
        if supports(env, HasParts):
            env.part_seeds("train")
    except EnvError as error:
        yield Problem(loaded.where("env"), _sentence(error))


def _estimator_problems(loaded: LoadedSweep, base: Path) -> Iterator[Problem]:
    """Yield the custom advantage estimators that cannot be imported, or called as asked."""
    sections = [condition.config["advantage"] for condition in loaded.conditions]
    custom = [section for section in sections if section["kind"] == "custom"]
    where = loaded.where("advantage.estimator")
    paths = list(dict.fromkeys(one["estimator"] for one in custom))
    bad = list(_import_problems(paths, where, base))
    yield from bad
    for one in () if bad else custom:
        yield from _call_problems(one["estimator"], one["arguments"], where)


def _call_problems(path: str, arguments: Mapping[str, object], where: str) -> Iterator[Problem]:
    """Yield why a trial could not call an estimator: its signature, where Python knows it."""
    try:
        signature = inspect.signature(load_object(path))
    except (TypeError, ValueError):  # a function of C without one
        return
    try:
        signature.bind("outcome_N", "group_N", **arguments)
    except TypeError as error:
        call = ", ".join(["outcome_N, group_N", *(f"{k}={v!r}" for k, v in arguments.items())])
        yield Problem(
            where,
            f"{path!r} cannot be called with ({call}): {_sentence(error)}",
            f"It is defined with {signature}.",
            "Change advantage.arguments, or the function.",
        )


def _probe_problems(env: TextEnv, loaded: LoadedSweep) -> Iterator[Problem]:
    """Yield what an attribution of the sweep asks of an env that does not know it."""
    sections = [condition.config["attribution"] for condition in loaded.conditions]
    asked = {one: section["kind"] for section in sections for one in _asked_of_env(section)}
    for protocol, kind in asked.items():
        if not supports(env, protocol):
            name = methods_of(protocol)[0]
            what = f"{type(env.unwrapped).__name__} has no {name}(), which it needs."
            otherwise = ", or choose attribution.judge: llm" if kind == "adca" else ""
            yield Problem(loaded.where("attribution"), what, action=f"Define {name}(){otherwise}.")


def _asked_of_env(attribution: Mapping[str, Any]) -> tuple[type, ...]:
    """Return the protocols that an attribution needs; one without weight needs none."""
    if attribution["kind"] == "adca":
        adca = AdcaConfig.model_validate(attribution)
        return _ASKED.get(adca.judge, ()) if adca.has_weight else ()
    return _ASKED["info_gain"] if attribution.get("mode", "none") != "none" else ()


def _judge_problems(loaded: LoadedSweep) -> Iterator[Problem]:
    """Yield what is missing for a language model to be asked: the client, or the key."""
    sections = [condition.config["attribution"] for condition in loaded.conditions]
    for section in sections:
        if section["kind"] == "adca" and AdcaConfig.model_validate(section).asks_llm:
            try:
                LlmJudge(**section["llm"]).require_ready()
            except InputError as error:
                yield from error.problems


def _import_problems(paths: Sequence[str], where: str, base: Path) -> Iterator[Problem]:
    if paths:
        add_to_path(base)
    for path in paths:
        try:
            load_object(path)
        except ImportPathError as error:
            yield Problem(where, _sentence(error))


def _sentence(error: BaseException | str | None) -> str:
    text = " ".join(str(error).split())
    return text if text.endswith((".", "?")) else f"{text}."


def _of_sets(env: TextEnv) -> Iterator[str]:
    """Yield the measures of the named sets."""
    sets = env.eval_sets() if supports(env, HasEvalSets) else {}
    measures = [name for name in SET_MEASURES if name in env.auxiliary_names]
    for name in (*sets, MACRO) if sets else ():
        yield from (f"{name}/{measure}" for measure in ("success_rate", *measures))


def _measure_problems(env: TextEnv, loaded: LoadedSweep) -> Iterator[Problem]:
    """Yield measures with a name that is taken, and a metric that nothing measures."""
    for name in env.auxiliary_names:
        if name in _RESERVED:
            what = f"the measure {name!r} has the name of one that every env has."
            yield Problem(loaded.where("env"), what, action="Rename it in auxiliary_names.")
    names = (*GATE_METRICS, *env.auxiliary_names, *_of_sets(env))
    asked = _asked(loaded)
    if asked not in names:
        what = f"{loaded.spec.metric.name!r} is not measured in this env."
        allowed = f"Choose one of {', '.join(f'heldout/{name}' for name in names)}."
        where = f"{loaded.path}: metric.name"
        hint = did_you_mean(asked, names).replace("'", "'heldout/", 1)
        yield Problem(where, what, allowed, hint)
