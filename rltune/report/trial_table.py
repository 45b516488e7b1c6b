"""One line per trial: the columns that fit the width; the least needed are dropped first."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from rltune.analysis.trial_states import TrialState
from rltune.report.render import STATUS_STYLE, grid, quantity, rate, stopwatch
from rltune.report.spark import heights_for, spark
from rltune.types import TrialStatus

SPARK_WIDTH = 10
"""Most gates that a spark line shows."""
_CONDITION_SHARE = 3  # on a terminal, the longest condition takes one part in so many of the width
_LEAST_CONDITION = 6  # least width of one that is cut
_WIDE_GAP = 2  # blanks between columns where there is room
_CUT = ".."  # stands for the middle of a condition that is too long; ASCII, for every console
_STATUSES = {str(status): STATUS_STYLE[status] for status in TrialStatus}


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    header: str  # its head
    cells: tuple[str, ...]  # one per trial
    is_number: bool  # whether it is set to the right
    rank: int  # columns of the highest rank are left out first; 0 never

    @property
    def width(self) -> int:
        """Return the width of its longest cell."""
        return max(cell_len(text) for text in (self.header, *self.cells))


@dataclass(frozen=True, slots=True)
class TrialTable:
    """Trials, drawn for the console that they are printed on.

    Off a terminal no column is left out and no line wrapped, however long it is.
    """

    trials: Sequence[TrialState]  # one per line
    # metric of the lowest and the highest character of the spark lines; None: no gate yet
    scale: tuple[float, float] | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw what fits."""
        heights = heights_for(options.encoding)
        columns, gap = trial_columns(self.trials, self.scale, heights=heights), _WIDE_GAP
        if console.is_terminal:
            columns = fitting(columns, options.max_width)
            gap = _WIDE_GAP if _width(columns, _WIDE_GAP) <= options.max_width else 1
        table = grid(
            [column.header for column in columns],
            right=[i for i, column in enumerate(columns) if column.is_number],
            whole=range(len(columns)),
            gap=gap,
        )
        table.width = _width(columns, gap)
        for row in zip(*(column.cells for column in columns), strict=True):
            table.add_row(*(Text(cell, style=_STATUSES.get(cell, "")) for cell in row))
        yield table


def trial_columns(
    trials: Sequence[TrialState], scale: tuple[float, float] | None, *, heights: str
) -> list[Column]:
    """Return every column, with the axis key at the head of the first."""
    key = common_key(trial.condition for trial in trials)
    low, high = scale or (0.0, 0.0)

    def gates(trial: TrialState) -> str:
        values = [gate.value for gate in trial.gates]
        return spark(values, low=low, high=high, width=SPARK_WIDTH, heights=heights)

    def column(
        header: str, cell: Callable[[TrialState], str], rank: int = 0, *, is_number: bool = True
    ) -> Column:
        return Column(header, tuple(map(cell, trials)), is_number, rank)

    return [
        column(key or "condition", lambda t: t.condition[len(key) + bool(key) :], is_number=False),
        column("seed", lambda t: str(t.seed)),
        column("status", lambda t: t.status.value, is_number=False),
        column("step", lambda t: f"{'-' if t.step is None else t.step}/{t.steps}"),
        column("held-out", gates, 3, is_number=False),
        column("start", lambda t: rate(t.base), 5),
        column("now", lambda t: f"{rate(t.last)} {t.scored}".rstrip(), 1),
        column("tok/s", lambda t: "-" if t.tokens_per_s is None else quantity(t.tokens_per_s), 6),
        column("spent", lambda t: stopwatch(t.cost.wall_s or None), 4),
        column("left", lambda t: stopwatch(t.eta_s), 2),
    ]


def common_key(conditions: Iterable[str]) -> str:
    """Return the axis key that all conditions begin with (`key=value`); empty without one."""
    keys = {label.partition("=")[0] if "=" in label else "" for label in conditions}
    return keys.pop() if len(keys) == 1 else ""


def fitting(columns: Sequence[Column], width: int) -> list[Column]:
    """Return the columns that fit a width; what must stay is cut where even that does not."""
    kept = [_cut(columns[0], max(_LEAST_CONDITION, width // _CONDITION_SHARE)), *columns[1:]]
    for rank in sorted({column.rank for column in columns if column.rank}, reverse=True):
        if _width(kept) <= width:
            break
        kept = [column for column in kept if column.rank != rank]
    over = _width(kept) - width
    return (
        [_cut(kept[0], max(_LEAST_CONDITION, kept[0].width - over)), *kept[1:]]
        if over > 0
        else kept
    )


def _cut(column: Column, width: int) -> Column:
    texts = [middle_cut(text, width) for text in (column.header, *column.cells)]
    return Column(texts[0], tuple(texts[1:]), column.is_number, column.rank)


def middle_cut(text: str, width: int) -> str:
    """Return a text of at most so many characters; both of its ends tell values apart."""
    if len(text) <= width:
        return text
    tail = (width - len(_CUT)) // 2
    return text[: width - len(_CUT) - tail] + _CUT + text[len(text) - tail :]


def _width(columns: Sequence[Column], gap: int = 1) -> int:
    return sum(column.width for column in columns) + gap * (len(columns) - 1)
