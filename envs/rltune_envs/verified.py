"""An environment whose reward and success a rubric decides."""

import math
from dataclasses import replace

from rltune_envs.base import FailureClass, Step, TextEnv
from rltune_envs.choices import require_choice, require_penalty
from rltune_envs.errors import VerifierError
from rltune_envs.protocols import HasCeiling, HasExpert, HasFloor, HasGold, supports
from rltune_envs.rewards import SCORES, Attempt, PlayedTurn, Rubric, Verdict
from rltune_envs.wrapper import EnvWrapper

TURN_REWARDS = ("none", "env")


class VerifiedEnv(EnvWrapper):
    """Plays another environment; on its last step the rubric's verdict replaces the reward.

    Success follows the rubric alone. An episode that succeeds is terminated, whatever limit ended
    it. One that fails keeps the environment's `failure_class`, or is `wrong` where the environment
    calls it a success. A score that fails is a fault: the step names it, and the episode is not a
    success and earns nothing. After a fault of the environment nothing is scored, and unscored
    measures are 0.

    Floor and ceiling are the environment's where the first score is `success`. Elsewhere no floor
    is exact (`bounds` measures it), and the ceiling holds where `splits.validate` lets the expert
    prove that a perfect player of the environment is one for the rubric.

    Args:
        env: What is played. It belongs to this object from now on.
        rubric: Scores the whole episode.
        turn_rewards: Reward of the turns before the last: `none` (0) or the environment's own.
        format_penalty: Added to the reward of every turn whose response could not be read, on top
            of what the environment takes for it.

    Raises:
        ValueError: `turn_rewards` is neither, or `format_penalty` is above 0 or not finite.

    """

    def __init__(
        self,
        env: TextEnv,
        rubric: Rubric,
        *,
        turn_rewards: str = "none",
        format_penalty: float = 0.0,
    ) -> None:
        require_choice("turn_rewards", turn_rewards, TURN_REWARDS)
        require_penalty(format_penalty)
        super().__init__(env)
        self.rubric = rubric
        self.keeps_turn_rewards = turn_rewards == "env"
        self.format_penalty = format_penalty
        judged = [term.name for term in rubric.terms if term.name not in env.auxiliary_names]
        self.auxiliary_names = (*env.auxiliary_names, *judged)
        self._seed = 0
        self._observation = ""
        self._turns: list[PlayedTurn] = []
        self._has_fault = False
        self._last: Step | None = None

    def reset(self, *, seed: int) -> str:
        """Start the task of `seed`."""
        self._seed, self._turns, self._has_fault, self._last = seed, [], False, None
        self._observation = super().reset(seed=seed)
        return self._observation

    def step(self, response: str) -> Step:
        """Play one turn, and judge the episode where it ends."""
        if self._last is not None and self._last.has_ended:
            return self._last.repeated()
        step = self.inner.step(response)
        self._turns.append(
            PlayedTurn(self._observation, response, step.actions, step.reward, step.is_valid)
        )
        self._observation = step.observation
        self._has_fault |= bool(step.fault)
        penalty = 0.0 if step.is_valid else self.format_penalty
        if step.has_ended:
            self._last = self._at_end(step, penalty)
        else:
            reward = step.reward if self.keeps_turn_rewards else 0.0
            self._last = replace(step, reward=reward + penalty)
        return self._last

    def supports_protocol(self, protocol: type) -> bool:
        """Return whether the environment has it, and it holds for the rubric's success too."""
        is_kept = self._is_env_success or protocol not in (HasFloor, HasCeiling)
        is_proved = protocol is HasCeiling and self.is_deterministic and supports(self, HasExpert)
        return (is_kept or is_proved) and super().supports_protocol(protocol)

    @property
    def _is_env_success(self) -> bool:
        """Whether the rubric asks for the environment's own success."""
        return self.rubric.terms[0].score is SCORES["success"] and 0 < self.rubric.threshold <= 1

    def _at_end(self, step: Step, penalty: float) -> Step:
        """Return the last step with the rubric's outcome in place of the environment's."""
        blank = dict.fromkeys((term.name for term in self.rubric.terms), 0.0)
        failed = replace(
            step,
            reward=0.0,
            success=False,
            failure_class=FailureClass.FAULT,
            auxiliary={**blank, **step.auxiliary},
        )
        if self._has_fault:
            return failed
        try:
            verdict = self.rubric.judge(self._attempt(step))
        except VerifierError as error:
            return replace(failed, fault=str(error))
        return replace(
            step,
            reward=verdict.reward + penalty,
            terminated=step.terminated or verdict.success,
            truncated=step.truncated and not verdict.success,
            success=verdict.success,
            failure_class=_failure_class(step, verdict),
            auxiliary={**step.auxiliary, **verdict.auxiliary},
        )

    def _attempt(self, last: Step) -> Attempt:
        return Attempt(
            task=self.inner.task(self._seed),
            turns=tuple(self._turns),
            success=last.success,
            reward=math.fsum(turn.reward for turn in self._turns),
            auxiliary=last.auxiliary,
            gold=self.inner.gold(self._seed) if supports(self.inner, HasGold) else {},
        )


def _failure_class(step: Step, verdict: Verdict) -> FailureClass:
    """Keep the environment's reason for a failure: it knows of limits and dead ends."""
    if verdict.success or step.success:
        return verdict.failure_class
    return step.failure_class
