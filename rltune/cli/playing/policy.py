"""A policy that plays one task after the other, turn by turn."""

from typing import TYPE_CHECKING, Any, cast

import typer

from rltune.cli.playing.turns import Outcome, finish, opening, turn
from rltune.maths.streams import stream_seed
from rltune.rollout.engine import SamplingParams
from rltune.rollout.episode import Slot, play
from rltune.spec.schema.trial import TrialConfig
from rltune_envs.base import Step, TextEnv

if TYPE_CHECKING:
    from rltune.policy.load import Policy

_MAX_CONTEXT = 8192  # tokens; a model may claim more than there is memory for


class PolicyPlayer:
    """A policy that plays one task after the other, through the rollout path of training.

    Args:
        policy: What plays.
        config: Its limits.
        env: What is played.
        temperature: Of the sampling; 0 is greedy, None the config's.
        is_sweep: Whether the context limit is the config's; else it is the model's own.

    """

    def __init__(
        self,
        policy: "Policy",
        config: TrialConfig,
        env: TextEnv,
        *,
        temperature: float | None,
        is_sweep: bool,
    ) -> None:
        from rltune.rollout.torch_engine import TorchEngine  # torch

        self._env = env
        self._policy = policy
        self._engine = TorchEngine(policy.decoder())
        limit = getattr(policy.model.config, "max_position_embeddings", None)
        room = min(limit or _MAX_CONTEXT, _MAX_CONTEXT)
        rollout = config.rollout
        self._params = SamplingParams(
            temperature=rollout.temperature if temperature is None else temperature,
            max_tokens=rollout.max_response_tokens,
            max_context=rollout.max_context if is_sweep else room,
        )
        self.turns: list[tuple[str, Step]] = []  # of the last task: response, what came of it

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
        self.turns = shown.turns
        steps = [step for _, step in shown.turns]
        if not (steps and steps[-1].has_ended):
            typer.echo("The context has no room left for another response.")
        return finish(self._env, seed, steps, failure_class=episode.failure_class)


class _Shown:
    """An environment that prints its turns and remembers them."""

    def __init__(self, env: TextEnv) -> None:
        self._env = env
        self.turns: list[tuple[str, Step]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, *, seed: int) -> str:
        observation = self._env.reset(seed=seed)
        typer.echo(f"{opening(self._env, seed, observation)}\n")
        return observation

    def step(self, response: str) -> Step:
        step = self._env.step(response)
        self.turns.append((response, step))
        typer.echo(f"> {response}\n{turn(self._env, step)}")
        return step
