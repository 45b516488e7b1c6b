"""A policy in `rltune play`, through the same rollout path as in training."""

from collections.abc import Callable
from pathlib import Path

import typer
from pydantic import ValidationError

from rltune.cli.play_screen import Outcome, drawn, ending, opening, turn_line
from rltune.errors import InputError
from rltune.maths.streams import stream_seed
from rltune.policy.load import policy_of
from rltune.rollout.engine import SamplingParams
from rltune.rollout.episode import Slot, play
from rltune.rollout.torch_engine import TorchEngine
from rltune.spec.problems import problems_from
from rltune.spec.schema import TrialConfig
from rltune.spec.schema_env import Env
from rltune.trainer.warmstart import RECIPES
from rltune.types import Episode
from rltune_envs.base import TextEnv

_MAX_CONTEXT = 8192  # tokens; a model may claim more than there is memory for


class Watcher:
    """A policy that is watched, one task after the other.

    Args:
        env: The env section.
        model: `tiny`, a folder, or a hub id.
        temperature: Of the sampling; 0 is greedy.
        make_env: Makes a fresh environment of the section.

    Raises:
        InputError: The policy cannot be loaded, or cannot read what the env shows.

    """

    def __init__(
        self, env: Env, model: str, *, temperature: float, make_env: Callable[[], TextEnv]
    ) -> None:
        config = _config(env, model)
        self._make_env = make_env
        self._policy = policy_of(config, Path.cwd(), device="cpu")
        self._engine = TorchEngine(self._policy.decoder())
        known = getattr(self._policy.model.config, "max_position_embeddings", None)
        room = min(known or _MAX_CONTEXT, _MAX_CONTEXT)
        is_compact = config.env.prompt == "compact"
        limit = RECIPES[env.kind].max_tokens if is_compact else config.rollout.max_response_tokens
        self._params = SamplingParams(temperature, limit, room)

    def play(self, seed: int) -> Outcome:
        """Play one task, and print it turn by turn."""
        env = self._make_env()
        (episode,) = play(
            [Slot(env.task(seed), 0, 0, stream_seed(seed, "play"))],
            make_env=lambda: env,
            renderer=self._policy.renderer,
            engine=self._engine,
            params=self._params,
        )
        _print(env, seed, episode)
        return Outcome(seed, episode.success, episode.failure_class)


def _config(env: Env, model: str) -> TrialConfig:
    try:
        return TrialConfig.model_validate({"env": env.model_dump(), "policy": {"model": model}})
    except ValidationError as error:
        found = problems_from(error, TrialConfig, lambda path: ".".join(map(str, path)))
        raise InputError(list(found)) from error


def _print(env: TextEnv, seed: int, episode: Episode) -> None:
    for index, turn in enumerate(episode.turns):
        if index == 0:
            typer.echo(f"{opening(env, seed, turn.observation)}\n")
        else:
            typer.echo(f"{drawn(env, turn.observation)}\n".lstrip("\n"))
        did = turn_line(turn.actions, reward=turn.reward, is_valid=turn.is_valid, fault=turn.fault)
        typer.echo(f"> {turn.response}\n{did}")
    typer.echo(
        ending(
            env,
            seed,
            success=episode.success,
            failure_class=episode.failure_class,
            reward=episode.reward,
            turns=len(episode.turns),
            auxiliary=episode.auxiliary,
        )
    )
