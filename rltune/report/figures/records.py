"""What a figure shows, as frozen records of plain values: the drawing takes nothing else.

`rltune export` writes each as `<figure>.json`. Every point names the trial behind it.
"""

from dataclasses import dataclass

MEAN, IQM = "mean", "iqm"
T, BOOTSTRAP = "t", "bootstrap"


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of the sweep.

    Attributes:
        label: As in the tables.
        short: Without the name of the axis.
        is_control: Whether the others are compared with it.
        n_planned: Seeds planned.
        n_finished: Seeds with a result.

    """

    label: str
    short: str
    is_control: bool
    n_planned: int
    n_finished: int


@dataclass(frozen=True, slots=True)
class Head:
    """What every figure says of its sweep.

    Attributes:
        figure: Name of the figure.
        sweep: Name of the sweep.
        run: Name of its run folder.
        title: Title of the sweep.
        axis: Key of the axis.
        mark: As in the tables: `ok`, or what stands against the sweep.
        notes: What a reader must know before comparing, one sentence each.
        caption: What the marks of the figure mean.
        alt: The figure in words.
        conditions: In the order of the plan.

    """

    figure: str
    sweep: str
    run: str
    title: str
    axis: str
    mark: str
    notes: tuple[str, ...]
    caption: str
    alt: str
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Mean:
    """An estimate over seeds at one step.

    Attributes:
        step: Training steps done.
        n_seeds: Seeds in it.
        value: The estimate.
        low: End of its interval; None where none may be drawn.
        high: The other end; None likewise.
        is_partial: Whether a seed that began is missing: the others are a selection.

    """

    step: int
    n_seeds: int
    value: float
    low: float | None
    high: float | None
    is_partial: bool


@dataclass(frozen=True, slots=True)
class SeedLine:
    """The values of one trial.

    Attributes:
        trial_id: Whose.
        seed: Its seed.
        status: How it ended, or where it is.
        steps: Training steps done at each value.
        values: One a step.

    """

    trial_id: str
    seed: int
    status: str
    steps: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """One condition in one panel: the label of the condition, its estimates, its seeds."""

    condition: str
    means: tuple[Mean, ...]
    seeds: tuple[SeedLine, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A level to compare with: its name and its value."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Panel:
    """One measure over training.

    Attributes:
        metric: Its name in the tables.
        label: Its name for readers, with its unit.
        is_rate: Whether it lies in [0, 1].
        references: Levels that all conditions share.
        series: One a condition that has any value.

    """

    metric: str
    label: str
    is_rate: bool
    references: tuple[Reference, ...]
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class Curves:
    """Measures over training steps: the learning curves, and the training dynamics.

    Attributes:
        head: Of the sweep.
        estimator: `mean` or `iqm`.
        method: Of the intervals: `t` or `bootstrap`.
        level: Of the intervals.
        panels: One a measure.

    """

    head: Head
    estimator: str
    method: str
    level: float
    panels: tuple[Panel, ...]


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
    """One condition against the control at the last gate.

    Attributes:
        condition: Its label.
        pairs: Seeds that both have, ended at the same step.
        delta: The estimator of the differences; None without any.
        low: End of its interval; None where none may be drawn.
        high: The other end.
        p: Of the paired t test, unadjusted; None with fewer than two pairs.
        p_holm: The same, adjusted over the conditions of the sweep; None without a ranking.
        p_sign_flip: Of the exact sign-flip test, adjusted likewise.
        seeds_for_80: Paired seeds that would see `delta` with 80 % power.
        verdict: `above`, `below`, `not separable`, `stopped early at 20`, `no verdict (why)`.
        sentence: The same for readers, with n and p.

    """

    condition: str
    pairs: tuple[Pair, ...]
    delta: float | None
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None
    p_sign_flip: float | None
    seeds_for_80: int | None
    verdict: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Every condition against the control.

    Attributes:
        head: Of the sweep.
        metric: What is compared.
        label: Its name for readers.
        is_less_better: Whether a difference below zero is an improvement.
        control: Label of the control.
        estimator: `mean` or `iqm`.
        method: Of the intervals.
        level: Of the intervals.
        rows: One a condition but the control.

    """

    head: Head
    metric: str
    label: str
    is_less_better: bool
    control: str
    estimator: str
    method: str
    level: float
    rows: tuple[Comparison, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """One condition at one gate: estimate over its trials; None before any has got there."""

    condition: str
    step: int
    value: float | None
    n_seeds: int
    is_partial: bool
    trial_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The metric by value of the axis and step.

    Attributes:
        head: Of the sweep; its conditions are the rows.
        metric: What is shown.
        label: Its name for readers.
        is_rate: Whether it lies in [0, 1].
        estimator: `mean` or `iqm`.
        steps: The columns.
        cells: Row by row.

    """

    head: Head
    metric: str
    label: str
    is_rate: bool
    estimator: str
    steps: tuple[int, ...]
    cells: tuple[Cell, ...]


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
    """One part of the budget.

    Attributes:
        name: Its column in `trials`.
        label: Its name for readers.
        unit: Of its values; empty for counts.
        uses: One a trial that has begun.
        means: Condition and mean over its finished trials; conditions without one are left out.
        spread: Largest of the means over the smallest; None where that is unknown.

    """

    name: str
    label: str
    unit: str
    uses: tuple[Use, ...]
    means: tuple[tuple[str, float], ...]
    spread: float | None


@dataclass(frozen=True, slots=True)
class Budget:
    """What the trials consumed."""

    head: Head
    quantities: tuple[Quantity, ...]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A figure that the tables cannot give: its name, and why."""

    figure: str
    reason: str


Figure = Curves | Comparisons | HeatMap | Budget
