"""The stand-in of an environment: random letters to read, a reward that counts."""

import hashlib
import random

from peer_work.work import observation_of, prompt_of, reward_of

from rltune_envs.base import FailureClass, Step, Task, TextEnv


class Letters(TextEnv):
    """Prompt of letters; each turn but the last is answered with more letters.

    Args:
        prompt: Characters of the prompt.
        turns: Responses in an episode.
        observation: Characters of an answer.

    """

    system_prompt = ""
    response_prefix = ""

    def __init__(self, *, prompt: int, turns: int, observation: int) -> None:
        self._prompt, self._turns, self._observation = prompt, turns, observation

    def reset(self, *, seed: int) -> str:
        self._turn, self._reward = 0, 0.0
        return prompt_of(seed, self._prompt)

    def step(self, response: str) -> Step:
        self._turn += 1
        reward = reward_of(response)
        self._reward += reward
        if self._turn < self._turns:
            return Step(observation_of(response, self._observation), reward=reward)
        success = self._reward > 0
        kind = FailureClass.NONE if success else FailureClass.WRONG
        return Step("", reward=reward, terminated=True, success=success, failure_class=kind)

    def task(self, seed: int) -> Task:
        digest = hashlib.sha256(prompt_of(seed, self._prompt).encode()).hexdigest()
        return Task(f"letters-{digest[:12]}", seed, digest, digest, 1)

    def format_response(self, actions: tuple[str, ...]) -> str:
        return "1"

    def expert_actions(self) -> tuple[str, ...]:
        return ("1",)

    def random_actions(self, rng: random.Random) -> tuple[str, ...]:
        return ("1",)

    def random_success_probability(self, seed: int) -> float:
        return 1.0

    def optimal_success_probability(self, seed: int) -> float:
        return 1.0
