"""Frozen records that cross the borders between rooms and processes. No torch, no Ray, no logic."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rltune_envs.base import GoldResponse

Json = None | bool | int | float | str | list[Any] | dict[str, Any]


class StopReason(StrEnum):
    """Why sampling of one response ended."""

    STOP = "stop"  # the policy sampled one of its end tokens
    LENGTH = "length"  # the response token limit was reached
    CONTEXT_CUT = "context_cut"  # the context was full before the response token limit was reached
    CONTEXT = "context"  # the prompt already fills the context; nothing was sampled


class TrialStatus(StrEnum):
    """How a trial ended, or where it is."""

    PENDING = "pending"  # planned, never started
    RUNNING = "running"  # started, no marker yet
    DONE = "done"  # reached its last step and wrote its DONE marker
    STOPPED_EARLY = "stopped_early"  # ended by a named rule before its last step; has a DONE marker
    FAILED = "failed"  # raised; FAILED marker holds the reason
    DIVERGED = "diverged"  # a loss or gradient was not finite; last good checkpoint is kept
    INTERRUPTED = "interrupted"  # stopped from outside; goes on from its checkpoint

    @property
    def is_finished(self) -> bool:
        """Whether the trial is never run again. On the same code a diverged one diverges again."""
        return self in {TrialStatus.DONE, TrialStatus.STOPPED_EARLY, TrialStatus.DIVERGED}

    @property
    def is_failure(self) -> bool:
        """Whether the trial failed or diverged."""
        return self in {TrialStatus.FAILED, TrialStatus.DIVERGED}

    @property
    def has_ended(self) -> bool:
        """Whether the trial finished or failed; `rltune sweep` runs a failed one again."""
        return self.is_finished or self is TrialStatus.FAILED


class RowStatus(StrEnum):
    """The status column of a lineage row: the field's ten values, then ours."""

    KEEP = "keep"  # finished and better than the best at record time
    DISCARD = "discard"  # finished and not better
    CRASH = "crash"  # died mid-run
    EVAL_BUDGET_OVERRUN = "eval_budget_overrun"  # held-out evaluation exceeded its wall
    TRAIN_BUDGET_OVERRUN = "train_budget_overrun"  # training exceeded its wall
    SIZE_BLOCKED = "size_blocked"  # artifact too big
    PREFLIGHT_CRASH = "preflight_crash"  # died before the first step
    HARNESS_ABORT = "harness_abort"  # bookkeeping kill; says nothing about the hypothesis
    DISQUALIFIED = "disqualified"  # finished but failed a structural gate (confounded sweep)
    BASELINE = "baseline"  # a finished control trial
    PRUNED = "pruned"  # stopped by a scheduler or an early-stop rule
    PREEMPTED = "preempted"  # interrupted from outside; a later attempt goes on
    DIVERGED = "diverged"  # a loss or gradient was not finite


@dataclass(frozen=True, slots=True)
class TrialSpec:
    """One training run to do: a condition with a seed, fully resolved."""

    trial_id: str  # slug + 10 hex of config_hash; names the folder
    sweep: str
    axis_key: str
    condition: str  # label of the axis value, `loss.kl_loss_coef=0.01`
    axis_value: Json
    is_control: bool
    seed: int
    config: Mapping[str, Any]  # plain nested dict, every default spelled out
    config_hash: str  # sha256 hex of the canonical JSON of config without excluded keys
    expected_delta: str = ""


@dataclass(frozen=True, slots=True)
class SeedPlan:
    """Seeds until decided: when a condition is looked at."""

    start: int  # seeds at the first look
    most: int  # seeds at the last look
    block: int = 1  # seeds between two looks
    effect: float = 0.0  # smallest difference of interest; 0 where none is stated

    @property
    def counts(self) -> tuple[int, ...]:
        """Seeds at each look."""
        return (*range(self.start, self.most, self.block), self.most)


@dataclass(frozen=True, slots=True)
class Distance:
    """Exact distance to go around one response; None where no solution is left."""

    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Turn:
    """One model response and what led to it.

    Invariant: the context the policy saw when it sampled is the concatenation of
    `prompt_ids + sampled_ids` of all earlier turns and `prompt_ids` of this one.
    """

    prompt_ids: tuple[int, ...]  # tokens appended to the context before sampling
    sampled_ids: tuple[int, ...]  # exactly what was sampled, end token included
    logprobs: tuple[float, ...]  # of sampled_ids at the sampling temperature
    stop_reason: StopReason
    observation: str  # text that prompt_ids encode, without chat markup
    response: str  # text that sampled_ids decode to, the prefilled prefix included
    actions: tuple[str, ...]  # executed actions
    reward: float  # env reward of this turn, format penalty included
    is_valid: bool  # the response parsed and every named action was allowed
    n_invalid: int  # refused action names, or 1 when there was no answer; 0 when is_valid
    n_over_limit: int  # allowed action names beyond the limits, not executed
    fault: str = ""  # what failed outside the policy, in one line; empty when nothing did
    distance: Distance | None = None  # to a solution; None where it was not measured
    gold: GoldResponse | None = None  # of a perfect player, without golds in a dead end; likewise


@dataclass(frozen=True, slots=True)
class Episode:
    """All turns of one rollout of one task."""

    task_id: str
    task_seed: int
    group: int  # index of the prompt in this step; equal values share the task
    member: int  # index inside the group
    turns: tuple[Turn, ...]
    terminated: bool  # the task itself ended (solved, or lost)
    truncated: bool  # a limit ended it (turns, actions, context)
    success: bool
    reward: float  # sum of turn rewards
    failure_class: str = "none"  # why it failed: `rltune_envs.base.FailureClass`
    auxiliary: Mapping[str, float] = field(default_factory=dict)  # the env's measures of it
    closing: str = ""  # what the environment showed at the end; the policy never read it
    is_out_of_context: bool = False  # the context left no room for another response
    noise_seed: int = 0  # names the environment's luck: `rltune_envs.base.TextEnv.noise_seed`
    early_fault: str = ""  # why it could not begin, in one line; then it has no turns

    @property
    def fault(self) -> str:
        """What failed first outside the policy; empty for an episode that counts.

        An episode with a fault teaches nothing and enters no rate and no mean.
        """
        return next((turn.fault for turn in self.turns if turn.fault), self.early_fault)

    @property
    def n_sampled(self) -> int:
        """Number of sampled tokens."""
        return sum(len(turn.sampled_ids) for turn in self.turns)


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What one finished training run measured; the content of its DONE marker."""

    trial_id: str
    status: TrialStatus
    reason: str  # empty for DONE
    final_step: int
    best_step: int  # chosen by the held-out gate alone
    heldout_metric: float  # metric_name at best_step
    base_metric: float  # metric_name at step 0
    final_metric: float  # metric_name at final_step
    pool_metric: float  # training success rate, mean of the last ten steps
    metrics_sha256: str  # over metrics.jsonl without timings
    train_s: float
    total_s: float
    budget: Mapping[str, float] = field(default_factory=dict)  # rollouts, generated_tokens, ...
    receipts: Mapping[str, float] = field(default_factory=dict)  # ig/*: means over all steps
    warnings: tuple[str, ...] = ()  # shown beside its numbers
    weights_sha256: str = ""  # of the chosen checkpoint's file, as written at its gate; if local
