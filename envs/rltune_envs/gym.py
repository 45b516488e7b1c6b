"""The environments for Gymnasium: `rltune/Sokoban-v0`, `FrozenLake-v0`, `MultihopQA-v0`.

Importing this module registers them. Gymnasium imports it by itself when a name says so:
`gymnasium.make("rltune_envs.gym:rltune/Sokoban-v0", size=7)`. An action is a whole response.
"""

import string
from typing import Any

try:
    import gymnasium  # here: nothing else imports this module, and a class needs its base
except ModuleNotFoundError as error:
    if error.name != "gymnasium":
        raise
    needed = "rltune_envs.gym needs gymnasium; install it: pip install 'rltune[gymnasium]'"
    raise ModuleNotFoundError(needed, name=error.name) from error

from rltune_envs.base import Step, TextEnv
from rltune_envs.imports import load_object

IDS = {
    "rltune/Sokoban-v0": "rltune_envs.sokoban:SokobanEnv",
    "rltune/FrozenLake-v0": "rltune_envs.frozen_lake:FrozenLakeEnv",
    "rltune/MultihopQA-v0": "rltune_envs.multihop_qa:MultihopQaEnv",
}
"""Name -> the class behind it."""

MAX_LENGTH = 1 << 20
"""Longest text of an observation or a response, in characters."""

SYMBOLS = "√"
"""Symbols of boards beyond ASCII."""

_TASK_SEEDS = 1 << 62


class AnyText(gymnasium.spaces.Text):  # type: ignore[misc]
    """Every text up to a length; samples are short and of printable ASCII.

    `gymnasium.spaces.Text` over all of Unicode would sample rubbish, slowly.
    """

    def __init__(self, max_length: int = MAX_LENGTH) -> None:
        super().__init__(max_length, min_length=0, charset=string.printable + SYMBOLS)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a text of at most 80 characters; `mask` and `probability` as in `Text`."""
        if mask is None and probability is None:
            mask = (int(self.np_random.integers(0, 81)), None)
        return str(super().sample(mask, probability))

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a text that is not too long, of any characters."""
        return isinstance(x, str) and len(x) <= self.max_length


class GymEnv(gymnasium.Env):  # type: ignore[misc]
    """A `TextEnv` as a Gymnasium environment.

    `reset(seed=n)` starts the task of seed n; `reset()` draws one from `np_random`. The option
    `noise_seed` of a reset names the luck of the episode, 0 by default. `info` has `task_id` and
    the `system_prompt` and `response_prefix` that a policy is given; after a step also `success`,
    `failure_class`, `auxiliary`, `fault` and the executed `actions`.

    Args:
        env_class: Import path of the text environment.
        render_mode: None, or `ansi`: `render` returns the observation.
        arguments: Of the text environment.

    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, env_class: str, render_mode: str | None = None, **arguments: Any) -> None:
        if render_mode not in (None, "ansi"):
            raise ValueError(f"render_mode is {render_mode!r}; choose None or 'ansi'")
        self.render_mode = render_mode
        self.text_env: TextEnv = load_object(env_class)(**arguments)
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self._task_id = ""
        self._shown = ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start the task of `seed`, or one that is drawn, with the luck of `options`."""
        super().reset(seed=seed)
        task_seed = int(self.np_random.integers(_TASK_SEEDS)) if seed is None else seed
        self.text_env.noise_seed = int((options or {}).get("noise_seed", 0))
        self._shown = self.text_env.reset(seed=task_seed)
        self._task_id = self.text_env.task(task_seed).task_id
        return self._shown, self._task_info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Apply one response, its prefix included."""
        step = self.text_env.step(action)
        self._shown = step.observation
        info = {**self._task_info(), **_step_info(step)}
        return step.observation, float(step.reward), step.terminated, step.truncated, info

    def render(self) -> str | None:
        """Return the observation when `render_mode` is `ansi`."""
        return self._shown if self.render_mode == "ansi" else None

    def _task_info(self) -> dict[str, Any]:
        return {
            "task_id": self._task_id,
            "system_prompt": self.text_env.system_prompt,
            "response_prefix": self.text_env.response_prefix,
        }


def _step_info(step: Step) -> dict[str, Any]:
    return {
        "success": step.success,
        "failure_class": step.failure_class.value,
        "auxiliary": dict(step.auxiliary),
        "fault": step.fault,
        "actions": step.actions,
    }


def register() -> None:
    """Register the environments with Gymnasium; a second time changes nothing."""
    for name, env_class in IDS.items():
        if name not in gymnasium.registry:
            gymnasium.register(
                name, entry_point="rltune_envs.gym:GymEnv", kwargs={"env_class": env_class}
            )


register()
