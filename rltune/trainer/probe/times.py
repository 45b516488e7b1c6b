"""The training steps that S6's probe compares: where a schedule or SEPA differs most.

What moves with the steps is simulated over the whole budget. SEPA's `auto` pools the more, the
further the variance of the execution tokens has fallen, and the average that it follows can fall no
faster than by `ema_decay` a step. So a variance that is 0 from the second step on drives it as far
as any trial can: where two conditions do not differ then, they never do.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rltune.advantages.sepa import SepaState
from rltune.comparability.knobs import filter_is_on, updates_per_step
from rltune.spec.estimators import CRITIC_KINDS
from rltune.spec.schema.trial import TrialConfig
from rltune.trainer.controllers import sepa_after, sepa_strength
from rltune.trainer.credit.attribution import verdict_weight

FALLS_AFTER = (1, 5, 20)
"""Training steps after which the simulated variance falls from 1 to 0."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that change with the training steps."""

    step: int  # training step, from 1
    sepa: float  # strength of SEPA's pooling
    verdicts: float  # weight of a judge's verdicts
    is_warmup: bool  # whether only the critic learns

    def distance(self, other: "Settings") -> float:
        """Return the largest difference of any of them."""
        return max(
            abs(self.sepa - other.sepa),
            abs(self.verdicts - other.verdicts),
            float(self.is_warmup != other.is_warmup),
        )


Track = tuple[Settings, ...]
"""The settings of each training step."""


def simulate(config: TrialConfig) -> list[Track]:
    """Return what a trial sets in each step, for each feedback that it may get.

    A filter that drops groups slows the clock of SEPA's ramp down, to one optimiser step a step.
    """
    full = updates_per_step(config)
    paces = [full, 1] if filter_is_on(config) else [full, full]
    return [_track(config, falls_after, pace) for falls_after in FALLS_AFTER for pace in paces]


def _track(config: TrialConfig, falls_after: int, n_steps: int) -> Track:
    state, track = SepaState(), []
    for step in range(1, config.budget.steps + 1):
        track.append(_settings(config, state, step))
        state = sepa_after(
            state,
            config.advantage.shaping.sepa,
            variance=1.0 if step <= falls_after else 0.0,
            success_rate=1.0,
            n_steps=n_steps,
        )
    return tuple(track)


def _settings(config: TrialConfig, state: SepaState, step: int) -> Settings:
    has_critic = config.advantage.kind in CRITIC_KINDS
    return Settings(
        step=step,
        sepa=sepa_strength(state, config.advantage.shaping.sepa),
        verdicts=_verdicts(config, step),
        is_warmup=has_critic and step <= config.critic.warmup_steps,
    )


def _verdicts(config: TrialConfig, step: int) -> float:
    attribution = config.attribution
    return verdict_weight(attribution, step) if attribution.kind == "adca" else 0.0


def telling_steps(
    tracks: Mapping[str, Sequence[Track]], pairs: Iterable[tuple[str, str]]
) -> tuple[tuple[int, int], ...]:
    """Return (feedback, training step) where some pair differs most, and the last warm-up's end.

    `tracks` are the settings of each condition for each feedback.
    """
    first = max(
        (at.step for of_one in tracks.values() for at in of_one[0] if at.is_warmup), default=0
    )
    steps = {(0, min(first + 1, len(next(iter(tracks.values()))[0]))): None}
    for a, b in pairs:
        most, where = 1e-9, None
        for nth, (left, right) in enumerate(zip(tracks[a], tracks[b], strict=True)):
            for one, other in zip(left, right, strict=True):
                if one.distance(other) > most * (1 + 1e-9):
                    most, where = one.distance(other), (nth, one.step)
        if where is not None:
            steps[where] = None
    return tuple(steps)
