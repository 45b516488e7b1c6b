"""The status of a run folder as text: progress, cost so far, failures."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from rltune.analysis.trial_states import DerivedState, SweepState, TrialState
from rltune.analysis.usage import Cost
from rltune.comparability.judged import judged_by_condition, judged_line, unjudged_line
from rltune.report.render import (
    STATUS_STYLE,
    duration,
    indent,
    line,
    quantity,
    rate,
    short_path,
    size,
    verbatim,
)
from rltune.report.spark import heights_for
from rltune.report.trial_table import TrialTable
from rltune.types import TrialStatus

SHOWN_FIRST = (
    TrialStatus.RUNNING,
    TrialStatus.INTERRUPTED,
    TrialStatus.FAILED,
    TrialStatus.DIVERGED,
    TrialStatus.STOPPED_EARLY,
    TrialStatus.DONE,
    TrialStatus.PENDING,
)
"""What needs a look first."""
_LEAST_SILENCE_S = 60.0
_SILENT_STEPS = 10.0  # a trial is silent after so many steps' time without a new line


def counts(trials: Sequence[TrialState]) -> str:
    """Return `1 running, 2 done, 3 pending`."""
    shown = ((status, sum(t.status is status for t in trials)) for status in SHOWN_FIRST)
    return ", ".join(f"{n} {status.value}" for status, n in shown if n)


def status_view(state: SweepState) -> RenderableType:
    """Return the state of a sweep: who drives it, every trial, what failed, its children."""
    if state.driver is None:
        who = "not running now"
    else:
        driver = state.driver
        who = f"driven by process {driver.pid} on {driver.host} since {driver.started}"
    return Group(
        line(f"{state.name}: {summary(state)}", "bold"),
        verbatim(f"  {short_path(state.path)}, {size(state.size_bytes)}"),
        line(f"  {who}"),
        line(),
        TrialTable(state.trials, state.scale),
        *notes(state),
        *bad_lines(state.trials),
        *derived_lines(state.derived),
    )


def summary(state: SweepState) -> str:
    """Return how many trials are where, and how long the rest takes."""
    left = f", about {duration(rounded(state.eta_s))} left" if state.eta_s is not None else ""
    return f"{counts(state.trials)}{left}"


def rounded(seconds: float) -> float:
    """Return an estimate without digits that it does not have: 10 s steps, minutes from 10 on."""
    unit = 60 if seconds >= 600 else 10 if seconds >= 60 else 1
    return round(seconds / unit) * unit


def notes(state: SweepState) -> Iterator[RenderableType]:
    """Yield the scale of the spark lines, what was consumed and judged, and who is silent."""
    if state.scale is not None:
        yield ScaleLine(state.metric_name, *state.scale)
    if state.cost.wall_s:
        elapsed = state.elapsed_s
        since = f"; started {duration(elapsed)} ago" if elapsed is not None else ""
        yield line(f"so far {spent(state.cost)}{since}", "dim")
    judged = judged_line(judged_by_condition((t.condition, t.judged) for t in state.trials))
    if judged:
        yield line(judged)
    named = unjudged_line((t.name, t.judged) for t in state.trials)
    if named:
        yield line(named, "yellow")
    yield from (line(text, "yellow") for text in map(silence, state.trials) if text)


class ScaleLine:
    """What the lowest and the highest character of the spark lines stand for."""

    def __init__(self, metric_name: str, low: float, high: float) -> None:
        self._metric_name, self._low, self._high = metric_name, low, high

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it with the characters that the console can show."""
        heights = heights_for(options.encoding)
        bottom, top = (f"{heights[i]} {rate(v)}" for i, v in ((0, self._low), (-1, self._high)))
        span = f"{bottom} to {top}" if self._high > self._low else rate(self._low)
        yield line(f"gates of {self._metric_name}, all trials on one scale: {span}", "dim")


def spent(cost: Cost) -> str:
    """Return what was consumed, as a sentence; GPU time where GPUs are reserved."""
    time = f"{duration(cost.core_s)} of core time"
    if cost.gpu_s:
        time = f"{duration(cost.gpu_s)} of GPU time, {time}"
    sentence = f"{quantity(cost.rollouts)} rollouts, {quantity(cost.tokens)} tokens, {time}"
    if cost.judge_calls:
        calls, tokens = quantity(cost.judge_calls), quantity(cost.judge_tokens)
        sentence += f", {calls} judge calls of {tokens} tokens"
    return f"{sentence}, {service}" if (service := cost.service.text) else sentence


def silence(trial: TrialState) -> str:
    """Return that a running trial has not said anything for long; empty when it has."""
    if trial.silent_s is None or trial.step_s is None:
        return ""
    usual = trial.step_s + (trial.gate_s or 0.0)
    if trial.silent_s <= max(_LEAST_SILENCE_S, _SILENT_STEPS * usual):
        return ""
    words = f"no new step for {duration(trial.silent_s)}; a step takes {trial.step_s:.1f} s"
    return f"{trial.name}: {words}; log: {short_path(trial.log)}"


def bad_lines(trials: Iterable[TrialState]) -> Iterator[RenderableType]:
    """Yield why trials failed and where their logs are, and what finished ones warn of."""
    for trial in trials:
        if trial.status.is_failure:
            yield failure_view(trial)
        for warning in trial.warnings:
            yield line(f"warning: {trial.name}: {warning}", "yellow")


def failure_view(trial: TrialState) -> RenderableType:
    """Return why a trial failed and where its log is."""
    where = "before the first gate" if trial.step is None else f"at step {trial.step}"
    status = (trial.status.value.upper(), "bold red")
    head = Text.assemble(status, f" {where}: {trial.name}: {trial.reason}")
    return Group(head, verbatim(f"  log: {short_path(trial.log)}"))


def derived_lines(derived: Sequence[DerivedState]) -> Iterator[RenderableType]:
    """Yield the children and repetitions, a line each, and why some of them failed."""
    if not derived:
        return
    yield line()
    yield line("Children and reruns, outside the comparison", "bold")
    for one in derived:
        yield from derived_view(one)
    yield from bad_lines(one.trial for one in derived)


def derived_view(derived: DerivedState) -> Iterator[RenderableType]:
    """Yield where a child or a repetition is, its id whole, and below it what it is."""
    trial = derived.trial
    step = f"{'-' if trial.step is None else trial.step}/{trial.steps}"
    ends = [trial.gates[0], trial.gates[-1]] if len(trial.gates) > 1 else trial.gates
    rates = " -> ".join(rate(gate.value) for gate in ends)
    yield Text.assemble(
        f"{trial.trial_id}  ",
        (trial.status.value, STATUS_STYLE[trial.status]),
        f", step {step}" + (f", held-out {rates}" if rates else ""),
        no_wrap=True,
        overflow="ignore",
    )
    what = f"child of {derived.parent}" if derived.kind == "child" else "repetition"
    yield indent(line(f"{what}: {derived.note}" if derived.note else what))
