"""Progress of a running sweep: a live table on a terminal, one line per event elsewhere."""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live

from rltune.report.render import duration, line, rate, short_path
from rltune.report.render_run import counts, failure_view, trials_view
from rltune.report.status import BAD, ENDED, SweepState, TrialState
from rltune.types import TrialStatus

_CHROME = 5  # lines around the live table


class Progress(Protocol):
    """Shows the states of a sweep as they come."""

    def show(self, state: SweepState) -> None:
        """Take the state of now."""

    def __enter__(self) -> "Progress":
        """Begin."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        if trial.status is not earlier.status:
            yield trial, _status_sentence(trial)


def _name(trial: TrialState) -> str:
    return f"{trial.condition}, seed {trial.seed}"


def _gate_sentence(trial: TrialState) -> str:
    said = f"{_name(trial)}: step {trial.last_gate}/{trial.steps}, held-out {rate(trial.last)}"
    if trial.last_gate:
        said += f" (start {rate(trial.base)})"
    if trial.tokens_per_s is not None:
        said += f", {trial.tokens_per_s:,.0f} tokens/s"
    return said + (f", {duration(trial.eta_s)} left" if trial.eta_s is not None else "")


def _status_sentence(trial: TrialState) -> str:
    name = _name(trial)
    at = "before the first gate" if trial.step is None else f"at step {trial.step}/{trial.steps}"
    match trial.status:
        case TrialStatus.RUNNING:
            return f"{name}: started" if not trial.step else f"{name}: goes on {at}"
        case TrialStatus.DONE:
            gain = f"held-out {rate(trial.base)} -> {rate(trial.last)}"
            return f"{name}: done, {gain}, best gate at step {trial.best_step}"
        case TrialStatus.FAILED | TrialStatus.DIVERGED:
            status, log = trial.status.value.upper(), short_path(trial.log)
            return f"{name}: {status} {at}: {trial.reason}; log: {log}"
        case _:
            why = f": {trial.reason}" if trial.reason else ""
            return f"{name}: {trial.status.value} {at}{why}"


class PlainProgress:
    """One line at each gate and change of status, without escape codes.

    Args:
        say: Prints one line.
        clock: Returns the time of day that lines start with.

    """

    def __init__(self, say: Callable[[str], None], clock: Callable[[], str]) -> None:
        self._say = say
        self._clock = clock
        self._last: SweepState | None = None

    def show(self, state: SweepState) -> None:
        """Say what is new."""
        for _, sentence in events(self._last, state):
            self._say(f"{self._clock()} {sentence}")
        self._last = state

    def __enter__(self) -> "PlainProgress":
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing to restore."""


class LiveProgress:
    """A table that is redrawn; ends and failures are printed above it and stay."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: SweepState | None = None
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def show(self, state: SweepState) -> None:
        """Redraw, and print what must not scroll away."""
        for trial, sentence in events(self._last, state):
            if self._last is None or trial.status not in ENDED:
                continue
            if trial.status in BAD:
                self._console.print(failure_view(trial))
            elif self._ended_now(trial):
                self._console.print(line(sentence))
        self._last = state
        self._live.update(live_view(state, height=self._console.height), refresh=True)

    def _ended_now(self, trial: TrialState) -> bool:
        before = {t.trial_id: t.status for t in self._last.trials} if self._last else {}
        return before.get(trial.trial_id) is not trial.status

    def __enter__(self) -> "LiveProgress":
        """Take the terminal."""
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the terminal back."""
        self._live.stop()


def live_view(state: SweepState, *, height: int) -> RenderableType:
    """Return the table of now; with more trials than lines, those that run come first."""
    left = f", about {duration(state.eta_s)} left" if state.eta_s is not None else ""
    room = max(1, height - _CHROME)
    shown = state.trials
    if len(shown) > room:
        order = (TrialStatus.RUNNING, TrialStatus.INTERRUPTED, TrialStatus.PENDING)
        ranked = sorted(shown, key=lambda t: order.index(t.status) if t.status in order else 9)
        shown = tuple(ranked[:room])
    hidden = len(state.trials) - len(shown)
    more = f" ({hidden} more: `rltune status`)" if hidden else ""
    return Group(trials_view(shown), line(f"{counts(state)}{left}{more}", "bold"))


def make_progress(
    console: Console, *, is_live: bool, say: Callable[[str], None], clock: Callable[[], str]
) -> Progress:
    """Return the live table when the console is a terminal, else plain lines."""
    return LiveProgress(console) if is_live else PlainProgress(say, clock)
