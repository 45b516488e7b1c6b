"""A policy in `rltune play`, through the same rollout path as in training."""

from pathlib import Path
from typing import Any, cast

import typer
from pydantic import ValidationError

from rltune.cli.play_config import Chosen
from rltune.cli.play_turns import Outcome, finish, is_over, opening, turn
from rltune.errors import InputError
from rltune.maths.streams import stream_seed
from rltune.policy.load import policy_of
from rltune.rollout.engine import SamplingParams
from rltune.rollout.episode import Slot, play
from rltune.rollout.torch_engine import TorchEngine
from rltune.spec.problems import problems_from
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.warmstart import RECIPES
from rltune_envs.base import Step, TextEnv

_MAX_CONTEXT = 8192  # tokens; a model may claim more than there is memory for


class Watcher:
    """A policy that is watched, one task after the other.

    Args:
        chosen: What is played. A sweep's limits of a response and of the context hold here, too.
        model: `tiny`, a folder, or a hub id.
        temperature: Of the sampling; 0 is greedy, None the sweep's own (else 1).
        env: The environment of `chosen`.

    Raises:
        InputError: The policy cannot be loaded, or cannot read what the env shows.

    """

    def __init__(
        self, chosen: Chosen, model: str, *, temperature: float | None, env: TextEnv
    ) -> None:
        config = _config(chosen, model)
        self._env = env
        self._policy = policy_of(config, Path.cwd(), device="cpu")
        self._engine = TorchEngine(self._policy.decoder())
        known = getattr(self._policy.model.config, "max_position_embeddings", None)
        room = min(known or _MAX_CONTEXT, _MAX_CONTEXT)
        rollout = config.rollout
        self._params = SamplingParams(
            temperature=rollout.temperature if temperature is None else temperature,
            max_tokens=rollout.max_response_tokens,
            max_context=rollout.max_context if chosen.is_sweep else room,
        )

    def play(self, seed: int) -> Outcome:
        """Play one task, and print each turn as it happens."""
        shown = _Shown(self._env)
        (episode,) = play(
            [Slot(self._env.task(seed), 0, 0, stream_seed(seed, "play"))],
            make_env=lambda: cast(TextEnv, shown),
            renderer=self._policy.renderer,
            engine=self._engine,
            params=self._params,
        )
        if not is_over(shown.steps):
            typer.echo("The context has no room left for another response.")
        return finish(self._env, seed, shown.steps, failure_class=episode.failure_class)


class _Shown:
    """An environment that prints what is done to it, and remembers its steps."""

    def __init__(self, env: TextEnv) -> None:
        self._env = env
        self.steps: list[Step] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, *, seed: int) -> str:
        observation = self._env.reset(seed=seed)
        typer.echo(f"{opening(self._env, seed, observation)}\n")
        return observation

    def step(self, response: str) -> Step:
        self.steps.append(self._env.step(response))
        typer.echo(f"> {response}\n{turn(self._env, self.steps[-1])}")
        return self.steps[-1]


def _config(chosen: Chosen, model: str) -> TrialConfig:
    """Return the config of a policy on an env: a sweep's own, or one with a response's length."""
    env, sections = chosen.env, dict(chosen.sections)
    if not chosen.is_sweep and env.prompt == "compact" and env.kind in RECIPES:
        sections["rollout"] = {"max_response_tokens": RECIPES[env.kind].max_tokens}
    policy = {**sections.get("policy", {}), "model": model}
    try:
        return TrialConfig.model_validate({**sections, "env": env.model_dump(), "policy": policy})
    except ValidationError as error:
        found = problems_from(error, TrialConfig, lambda path: ".".join(map(str, path)))
        raise InputError(list(found)) from error
