"""An environment whose reward and success a rubric decides."""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace

from rltune_envs.base import FailureClass, Step, TextEnv
from rltune_envs.choices import require_choice, require_penalty
from rltune_envs.errors import CustomCodeError, TaskError, VerifierError
from rltune_envs.faults import too_many_faults
from rltune_envs.protocols import HasFloor, HasGold, HasRandomPlayer, require, supports
from rltune_envs.rewards import SCORES, Attempt, PlayedTurn, Rubric, Verdict
from rltune_envs.streams import stream
from rltune_envs.wrapper import EnvWrapper

TURN_REWARDS = ("none", "env")
FLOOR_EPISODES = 32  # per task, where the rubric's success is not the environment's


class VerifiedEnv(EnvWrapper):
    """Plays another environment; on its last step the rubric's verdict replaces the reward.

    Success follows the rubric alone. An episode that succeeds is terminated, whatever limit ended
    it. One that fails keeps the environment's `failure_class`, or is `wrong` where the environment
    calls it a success. A score that fails is a fault: the step names it, and the episode is not a
    success and earns nothing. After a fault of the environment nothing is scored, and unscored
    measures are 0.

    A perfect player of the environment must also be one for the rubric, which `splits.validate`
    checks. So the ceiling is the environment's. So is the floor where the first score is `success`;
    elsewhere it is measured, on `FLOOR_EPISODES` random episodes a task without faults.

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
        """Return whether the environment has it; a floor is measured by its random player."""
        if protocol is HasFloor and not self._is_env_success:
            protocol = HasRandomPlayer
        return super().supports_protocol(protocol)

    @property
    def _is_env_success(self) -> bool:
        """Whether the rubric asks for the environment's own success."""
        return self.rubric.terms[0].score is SCORES["success"] and 0 < self.rubric.threshold <= 1

    def random_success_probability(self, seed: int) -> float:
        """Return the environment's own where the rubric asks for its success, else measure it."""
        if self._is_env_success:
            return super().random_success_probability(seed)
        apart = copy.copy(self)  # the running episode must not notice
        apart.inner = copy.deepcopy(self.inner)
        return _rate([_play_randomly(apart, seed, i) for i in range(FLOOR_EPISODES)], seed)

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


def _play_randomly(env: TextEnv, seed: int, index: int) -> bool | str:
    """Return whether a random episode is a success, or its fault."""
    rng, player = stream(f"random floor/{seed}/{index}"), require(env, HasRandomPlayer)
    fault = ""
    try:
        env.noise_seed = index
        env.reset(seed=seed)
        while True:
            step = env.step(player.format_response(player.random_actions(rng)))
            fault = fault or step.fault
            if step.has_ended:
                return fault or step.success
    except CustomCodeError as error:
        return str(error)


def _rate(outcomes: Sequence[bool | str], seed: int) -> float:
    """Return the share of successes among the episodes without a fault.

    Raises:
        TaskError: Too many had one.

    """
    faults = [outcome for outcome in outcomes if isinstance(outcome, str)]
    if too_many_faults(len(faults), len(outcomes)):
        raise TaskError(
            f"{len(faults)} of {len(outcomes)} random episodes of the task of seed {seed} had a "
            f"fault, so its floor cannot be measured; the first: {faults[0]}. Repair it"
        )
    won = [outcome for outcome in outcomes if not isinstance(outcome, str)]
    return sum(won) / len(won)
