"""What a figure shows, as frozen records of plain values: the drawing takes nothing else.

`rltune export` writes each as `<figure>.json`. Every point names the trial behind it.
"""

from dataclasses import dataclass

from rltune.analysis.generations import GenerationRow
from rltune.maths.interval import Interval
from rltune.maths.sequential import Look

MEAN, IQM = "mean", "iqm"
T, BOOTSTRAP = "t", "bootstrap"


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of the sweep."""

    label: str  # as in the tables
    short: str  # without the name of the axis
    is_control: bool  # whether the others are compared with it
    n_planned: int  # seeds planned
    n_finished: int  # seeds with a result


@dataclass(frozen=True, slots=True)
class Head:
    """What every figure says of its sweep."""

    figure: str
    sweep: str
    run: str  # name of its run folder
    title: str  # of the sweep
    axis: str  # key of the axis
    mark: str  # as in the tables: `ok`, or what stands against the sweep
    notes: tuple[str, ...]  # what a reader must know before comparing, one sentence each
    caption: str  # what the marks of the figure mean
    alt: str  # the figure in words
    conditions: tuple[Condition, ...]  # in the order of the plan


@dataclass(frozen=True, slots=True)
class Mean:
    """An estimate over seeds at one step."""

    step: int  # training steps done
    n_seeds: int  # seeds in it
    value: float
    low: float | None  # end of its interval; None where none may be drawn
    high: float | None  # the other end; None likewise
    is_partial: bool  # whether a seed that began is missing: the others are a selection


@dataclass(frozen=True, slots=True)
class SeedLine:
    """The values of one trial."""

    trial_id: str  # whose
    seed: int
    status: str  # how it ended, or where it is
    steps: tuple[int, ...]  # training steps done at each value
    values: tuple[float, ...]  # one per step


@dataclass(frozen=True, slots=True)
class Reference:
    """A level to compare with: its name, its value, and its interval where it was measured."""

    name: str
    value: float
    interval: Interval | None = None

    @property
    def text(self) -> str:
        """The name with its numbers, as captions write it."""
        numbers = f"{self.name} {self.value:.3g}"
        if self.interval is None:
            return numbers
        return f"{numbers} [{self.interval.low:.3g}, {self.interval.high:.3g}]"


@dataclass(frozen=True, slots=True)
class Series:
    """One condition in one panel: the label of the condition, its estimates, its seeds."""

    condition: str
    means: tuple[Mean, ...]
    seeds: tuple[SeedLine, ...]
    levels: tuple[Reference, ...] = ()  # its own, where conditions differ in them


@dataclass(frozen=True, slots=True)
class Panel:
    """One measure over training."""

    metric: str  # its name in the tables
    label: str  # its name for readers, with its unit
    is_rate: bool  # whether it lies in [0, 1]
    references: tuple[Reference, ...]  # levels that all conditions share
    series: tuple[Series, ...]  # one per condition that has any value


@dataclass(frozen=True, slots=True)
class Curves:
    """Measures over training steps: the learning curves, and the training dynamics."""

    head: Head  # of the sweep
    estimator: str  # `mean` or `iqm`
    method: str  # of the intervals: `t` or `bootstrap`
    level: float  # of the intervals
    panels: tuple[Panel, ...]  # one per measure


@dataclass(frozen=True, slots=True)
class Pair:
    """A seed that a condition and the control both finished: their trials, values, difference."""

    seed: int
    trial_id: str
    control_trial_id: str
    value: float
    control_value: float
    difference: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One condition against the control at the last gate."""

    condition: str  # its label
    pairs: tuple[Pair, ...]  # seeds that both have, ended at the same step
    delta: float | None  # the estimator of the differences; None without any
    low: float | None  # end of its interval; None where none may be drawn
    high: float | None  # the other end
    p: float | None  # of the paired t test, unadjusted; None with fewer than two pairs
    # the same, adjusted over the conditions of the sweep; None without a ranking
    p_holm: float | None
    p_sign_flip: float | None  # of the exact sign-flip test, adjusted likewise
    seeds_for_80: int | None  # paired seeds that would see `delta` with 80 % power
    verdict: str  # `above`, `below`, `not separable`, `stopped early at 20`, `no verdict (why)`
    sentence: str  # the same for readers, with n and p
    looks: tuple[Look, ...] = ()  # with seeds until decided, every look that was taken


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Every condition against the control."""

    head: Head  # of the sweep
    metric: str  # what is compared
    label: str  # its name for readers
    is_less_better: bool  # whether a difference below zero is an improvement
    control: str  # label of the control
    estimator: str  # `mean` or `iqm`
    method: str  # of the intervals
    level: float  # of the intervals
    rows: tuple[Comparison, ...]  # one per condition but the control


@dataclass(frozen=True, slots=True)
class Cell:
    """One condition at one gate: its estimate, if it has one there, and the trials behind it."""

    condition: str
    step: int
    value: float | None
    n_seeds: int
    is_partial: bool
    trial_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The metric by value of the axis and step."""

    head: Head  # of the sweep; its conditions are the rows
    metric: str  # what is shown
    label: str  # its name for readers
    is_rate: bool  # whether it lies in [0, 1]
    estimator: str  # `mean` or `iqm`
    steps: tuple[int, ...]  # the columns
    cells: tuple[Cell, ...]  # row by row


@dataclass(frozen=True, slots=True)
class Use:
    """What one trial consumed, and whether it has ended with a result."""

    condition: str
    trial_id: str
    seed: int
    value: float
    is_finished: bool


@dataclass(frozen=True, slots=True)
class Quantity:
    """One part of the budget."""

    name: str  # its column in `trials`
    label: str  # its name for readers
    unit: str  # of its values; empty for counts
    uses: tuple[Use, ...]  # one per trial that has begun
    # condition and mean over its finished trials; conditions without one are left out
    means: tuple[tuple[str, float], ...]
    spread: float | None  # largest of the means over the smallest; None where that is unknown


@dataclass(frozen=True, slots=True)
class Budget:
    """What the trials consumed."""

    head: Head
    quantities: tuple[Quantity, ...]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One measure of one condition on one named set; `macro` is the mean over the sets."""

    condition: str
    benchmark: str
    measure: str
    n_seeds: int
    value: float
    low: float | None  # end of its interval; None where none may be drawn
    high: float | None


@dataclass(frozen=True, slots=True)
class Benchmarks:
    """Every condition on every named set, at the last gate."""

    head: Head
    measures: tuple[str, ...]  # the panels
    labels: tuple[str, ...]  # their names for readers
    points: tuple[Benchmark, ...]


@dataclass(frozen=True, slots=True)
class GenerationChart:
    """The generations of one model; its head names the youngest and has no conditions."""

    head: Head
    metric: str  # what is measured
    label: str  # its name for readers
    is_rate: bool  # whether it lies in [0, 1]
    rows: tuple[GenerationRow, ...]  # oldest first


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A figure that the tables cannot give: its name, and why."""

    figure: str
    reason: str


Figure = Curves | Comparisons | HeatMap | Budget | Benchmarks | GenerationChart
