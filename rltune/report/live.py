"""Progress of a running sweep: a live table on a terminal, one line per event elsewhere."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.control import Control
from rich.live import Live

from rltune.analysis.trial_states import SweepState, TrialState
from rltune.report.render import duration, line, rate, short_path
from rltune.report.render_status import SHOWN_FIRST, counts, failure_view, notes, spent, summary
from rltune.report.trial_table import TrialTable
from rltune.store.service_usage import money
from rltune.types import TrialStatus

_FEW_ROWS = 3  # trials that a low terminal shows before it shows notes
_ROWS_SHARE = 0.75  # share of the lines that trials have, when there are enough of them
_ROOMY = 16  # height from which blank lines set the table off
_KEPT = 50  # lines above the table that are drawn again when the terminal's size changes


class Progress(Protocol):
    """Shows the states of a sweep as they come."""

    def show(self, state: SweepState) -> None:
        """Take the state of now."""

    def __enter__(self) -> "Progress":
        """Begin."""

    def __exit__(self, *raised: object) -> None:
        """End, leaving the terminal as it was."""


def events(old: SweepState | None, new: SweepState) -> Iterator[tuple[TrialState, str]]:
    """Yield (trial, sentence) for each gate and each change of status between two states.

    The first state is compared with nothing: trials that ended before are not told again.
    """
    before = {trial.trial_id: trial for trial in old.trials} if old is not None else {}
    for trial in new.trials:
        earlier = before.get(trial.trial_id)
        if earlier is None:
            if trial.status is TrialStatus.RUNNING:
                yield trial, _status_sentence(trial)
            continue
        if trial.last_gate is not None and trial.last_gate != earlier.last_gate:
            yield trial, _gate_sentence(trial)
        if trial.status is TrialStatus.RUNNING and earlier.step is not None:
            if earlier.status is not TrialStatus.RUNNING:
                reached = f"its last attempt reached step {earlier.step}/{earlier.steps}"
                yield trial, f"{trial.name}: started again; {reached}"
        elif trial.status is not earlier.status:
            yield trial, _status_sentence(trial)


def ended_between(old: SweepState | None, new: SweepState) -> tuple[TrialState, ...]:
    """Return the trials that ended since the earlier state; none when there is no earlier one."""
    before = {trial.trial_id: trial.status for trial in old.trials} if old is not None else {}
    return tuple(
        trial
        for trial in new.trials
        if trial.status.has_ended and before.get(trial.trial_id, trial.status) is not trial.status
    )


def _gate_sentence(trial: TrialState) -> str:
    sentence = f"{trial.name}: step {trial.last_gate}/{trial.steps}, held-out {rate(trial.last)}"
    if trial.last_gate:
        sentence += f" (start {rate(trial.base)})"
    if trial.tokens_per_s is not None:
        sentence += f", {trial.tokens_per_s:,.0f} tokens/s"
    if trial.cost.wall_s:
        sentence += f", {duration(trial.cost.wall_s)} spent"
    if trial.cost.service.paid:
        sentence += f", {money(trial.cost.service.paid)}"
    return sentence + (f", {duration(trial.eta_s)} left" if trial.eta_s is not None else "")


def _status_sentence(trial: TrialState) -> str:
    at = "before the first gate" if trial.step is None else f"at step {trial.step}/{trial.steps}"
    match trial.status:
        case TrialStatus.RUNNING:
            return f"{trial.name}: started" if not trial.step else f"{trial.name}: goes on {at}"
        case TrialStatus.DONE:
            gain = f"held-out {rate(trial.base)} -> {rate(trial.last)}"
            return f"{trial.name}: done, {gain}, best gate at step {trial.best_step}"
        case TrialStatus.FAILED | TrialStatus.DIVERGED:
            status, log = trial.status.value.upper(), short_path(trial.log)
            return f"{trial.name}: {status} {at}: {trial.reason}; log: {log}"
        case _:
            why = f": {trial.reason}" if trial.reason else ""
            return f"{trial.name}: {trial.status.value} {at}{why}"


class PlainProgress:
    """One line at each gate and change of status, without escape codes.

    After each end comes a line about the sweep: what is left, and what it cost so far.
    """

    def __init__(self, say: Callable[[str], None], clock: Callable[[], str]) -> None:
        self._say = say
        self._clock = clock
        self._last: SweepState | None = None

    def show(self, state: SweepState) -> None:
        """Say what is new."""
        for _, sentence in events(self._last, state):
            self._say(f"{self._clock()} {sentence}")
        if ended_between(self._last, state):
            so_far = f"{summary(state)}; so far {spent(state.cost)}"
            self._say(f"{self._clock()} {state.name}: {so_far}")
        self._last = state

    def __enter__(self) -> "PlainProgress":
        """Begin."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Nothing to restore."""


class LiveProgress:
    """A table that is redrawn; ends and failures are printed above it and stay."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: SweepState | None = None
        self._kept: list[RenderableType] = []
        self._size = console.size
        self._live = self._make_live()

    def _make_live(self) -> Live:
        return Live(console=self._console, auto_refresh=False, transient=True)

    def show(self, state: SweepState) -> None:
        """Redraw, and print what must not scroll away."""
        self._fit()
        for trial in ended_between(self._last, state):
            item = failure_view(trial) if trial.status.is_failure else line(_status_sentence(trial))
            self._console.print(item)
            self._kept = [*self._kept, item][-_KEPT:]
        self._last = state
        self._live.update(LiveView(state), refresh=True)

    def _fit(self) -> None:
        """Begin with a clear screen once its size has changed: what was drawn is wrapped anew."""
        if self._console.size == self._size:
            return
        self._size = self._console.size
        self._live.stop()
        self._console.control(Control.clear(), Control.home())
        for item in self._kept:
            self._console.print(item)
        self._live = self._make_live()
        self._live.start()

    def __enter__(self) -> "LiveProgress":
        """Take the terminal."""
        self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        """Give the terminal back, if it is still there."""
        with suppress(OSError):
            self._live.stop()


@dataclass(frozen=True, slots=True)
class LiveView:
    """The screen of now, never higher than the terminal.

    With more trials than lines, those that run come first; on a low one the notes go before that.
    """

    state: SweepState

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw what fits."""
        state = self.state
        head: list[RenderableType] = [line(f"{state.name}: {summary(state)}", "bold")]
        foot = list(notes(state))
        if console.size.height >= _ROOMY:
            head, foot = [line(), *head, line()], [line(), *foot]
        room = console.size.height - 1 - _lines(head, console, options) - 1  # one: the table's head
        least = min(len(state.trials), max(_FEW_ROWS, int(room * _ROWS_SHARE)))
        while foot and room - _lines(foot, console, options) < least:
            foot.pop(0)  # the last ones say who is silent
        room = max(1, room - _lines(foot, console, options))
        shown = first_trials(state.trials, room)
        yield from head
        yield TrialTable(shown, state.scale)
        if len(shown) < len(state.trials):
            names = {trial.trial_id for trial in shown}
            hidden = [trial for trial in state.trials if trial.trial_id not in names]
            more = f"{len(hidden)} more: {counts(hidden)}; `rltune status` lists all"
            yield line(more[: options.max_width], "dim")
        yield from foot


def _lines(items: Sequence[RenderableType], console: Console, options: ConsoleOptions) -> int:
    return sum(len(console.render_lines(item, options, pad=False)) for item in items)


def first_trials(trials: Sequence[TrialState], room: int) -> tuple[TrialState, ...]:
    """Return the trials that fit so many lines, in their own order; one line is for the rest."""
    if len(trials) <= room:
        return tuple(trials)
    ranked = sorted(trials, key=lambda trial: SHOWN_FIRST.index(trial.status))
    kept = {trial.trial_id for trial in ranked[: max(1, room - 1)]}
    return tuple(trial for trial in trials if trial.trial_id in kept)


def make_progress(
    console: Console, *, is_live: bool, say: Callable[[str], None], clock: Callable[[], str]
) -> Progress:
    """Return the live table when the console is a terminal, else plain lines."""
    return LiveProgress(console) if is_live else PlainProgress(say, clock)
