"""The calls and tokens that a language-model judge needs, before anything is paid."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rltune.comparability.findings import Finding, warning
from rltune.comparability.knobs import rollouts_per_step
from rltune.spec.schema.attribution import AdcaConfig, JudgeConfig
from rltune.spec.schema.trial import TrialConfig

TOKENS_OF_A_CALL = 500
"""Least tokens that a call takes: about 370 of instructions, the rest trajectory and reply."""


@dataclass(frozen=True, slots=True)
class JudgeNeed:
    """What one trial asks of a language-model judge."""

    # Most first requests: one an episode of each step with verdicts. Skip rules and the filter
    # lower it; second requests and further tries come on top.
    calls: int
    last_step: int  # the last step with verdicts
    ends: int | None  # first step that the budget does not cover whole; None when it covers all
    by: str  # the limit that ends it: `max_calls` or `max_tokens`


def judge_need(config: TrialConfig) -> JudgeNeed | None:
    """Return what a trial asks of a language-model judge; None when it asks none."""
    own = config.attribution
    if own.kind != "adca" or not own.asks_llm:
        return None
    steps, a_step = _steps(own, config.budget.steps), rollouts_per_step(config)
    covered = {
        "max_calls": own.llm.max_calls // a_step,
        "max_tokens": own.llm.max_tokens // (a_step * TOKENS_OF_A_CALL),
    }
    by = min(covered, key=lambda name: covered[name])
    return JudgeNeed(
        steps * a_step, steps, ends=None if covered[by] >= steps else covered[by] + 1, by=by
    )


def _steps(attribution: AdcaConfig, steps: int) -> int:
    """Return the last training step in which verdicts have weight."""
    last = min(steps, attribution.first_steps or steps)
    if attribution.alpha_schedule == "cosine" and attribution.alpha_min == 0:
        last = min(last, attribution.alpha_steps)
    return last


def judge_findings(configs: Mapping[str, TrialConfig]) -> Iterator[Finding]:
    """Yield S8: a judge whose budget ends before the trial, or that is set and never asked."""
    needs = {label: judge_need(config) for label, config in configs.items()}
    short = {label: need for label, need in needs.items() if need and need.ends is not None}
    if short:
        worst = min(short.values(), key=lambda need: need.ends or math.inf)
        message = (
            f"The judge's {worst.by} lasts to step {(worst.ends or 1) - 1} of {worst.last_step} in "
            f"{', '.join(short)}: a trial asks up to {worst.calls:,} calls. From then on turns get "
            "the outcome alone, and the axis is measured on a part of the training."
        )
        yield warning("S8.judge_budget", message, _remedy(worst))
    if not any(needs.values()) and (idle := _idle(configs)):
        message = f"attribution.llm is set and does nothing: no condition asks it ({idle})."
        yield warning("S8.judge_idle", message, "Set attribution.judge: llm, or remove its keys.")


def _remedy(worst: JudgeNeed) -> str:
    tokens = worst.calls * 2 * TOKENS_OF_A_CALL
    return (
        f"Set attribution.llm.max_calls to {worst.calls * 2:,} (a second request each) and "
        f"max_tokens to {tokens:,} or more, or attribution.first_steps to what you want to pay."
    )


def _idle(configs: Mapping[str, TrialConfig]) -> str:
    """Return why nobody asks a judge that some condition sets; empty when none sets one."""
    sections = [c.attribution for c in configs.values() if c.attribution.kind == "adca"]
    if all(own.llm == JudgeConfig() for own in sections):
        return ""
    judges = dict.fromkeys(own.judge for own in sections)
    if "llm" in judges:
        return "attribution.alpha is 0"
    return f"attribution.judge is {', '.join(judges)}"
