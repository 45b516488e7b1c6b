"""Replay an episode from its seeds and responses to recover its observations.

Folders without replays.jsonl keep no observations. The shipped environments are a function of the
task's seed, the noise seed and the responses, so the same ones come out again; custom code and
servers are not run.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from rltune.errors import InputError
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.tasks import ENVS, env_maker
from rltune.types import TrialSpec
from rltune_envs.base import TextEnv
from rltune_envs.errors import EnvError

_LOCAL_RETRIEVER = "bm25"

Row = Mapping[str, Any]


def rebuilt(spec: TrialSpec, rows: Sequence[Row]) -> Iterator[tuple[Row, list[str]]]:
    """Yield each episode with the texts before its turns and after the last.

    The texts are empty where the environment cannot be made here, where an env with luck has no
    noise seed recorded, or where it does not execute the actions that were recorded.
    """
    env = _env(spec.config)
    for row in rows:
        seen = None if env is None else _seen(env, row)
        yield row, seen or [""] * (len(row["turns"]) + 1)


_REBUILT = {*ENVS} - {"verified"}  # whose file may have changed, and whose verifier may be custom


def _env(config: Mapping[str, Any]) -> TextEnv | None:
    env = config["env"]
    if env["kind"] not in _REBUILT or env.get("retriever", _LOCAL_RETRIEVER) != _LOCAL_RETRIEVER:
        return None
    try:
        sections = {"env": env, "policy": config["policy"]}
        return env_maker(TrialConfig.model_validate(sections).env)()
    except (ValidationError, InputError, EnvError, OSError, ValueError):
        return None


def _seen(env: TextEnv, row: Row) -> list[str] | None:
    """Return what was seen; None when the luck is not recorded or the actions do not agree."""
    if not env.is_deterministic and "noise_seed" not in row:
        return None
    env.noise_seed = row.get("noise_seed", 0)
    seen = [env.reset(seed=row["task_seed"])]
    for turn in row["turns"]:
        step = env.step(turn["response"])
        if list(step.actions) != list(turn["actions"]):
            return None
        seen.append(step.observation)
    return seen
