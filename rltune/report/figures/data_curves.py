"""Data of the figures over training steps: learning curves, and the training dynamics of RAGEN-2.

The dynamics are its three panels: success, retrieval accuracy, reasoning entropy. Responses that
ignore their prompts can keep a high entropy; retrieval accuracy then is at chance.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from statistics import fmean, mode

from rltune.analysis.rates import RETRIEVAL, SUCCESS, is_rate_metric, resolution_of
from rltune.analysis.tables import HistoryRow, TrialRow
from rltune.maths.interval import Interval
from rltune.report.figures.estimates import (
    BOOTSTRAP_FROM,
    Estimation,
    counts_of,
    estimation_for,
    lines_of,
    means_of,
)
from rltune.report.figures.notes import (
    BAD_ENDS,
    estimate_text,
    head_of,
    interval_text,
    label_of,
    n_text,
    narrow_notes,
    partial_notes,
    seed_notes,
)
from rltune.report.figures.records import Curves, LeftOut, Mean, Panel, Reference, SeedLine, Series
from rltune.report.figures.source import Tables, trials_by_condition

CURVES, DYNAMICS = "learning_curves", "dynamics"
CHANCE = "collapse/retrieval_chance"
ENTROPY = "collapse/reasoning_entropy"
TRIO = (SUCCESS, RETRIEVAL, ENTROPY)
FLOOR, CEILING, START = "random floor", "ceiling", "start"


def curves_data(tables: Tables) -> Curves | LeftOut:
    """Return the sweep's held-out metric over training, by condition and by seed."""
    return measure_data(tables, tables.trials[0].metric, figure=CURVES)


def measure_data(tables: Tables, metric: str, *, figure: str) -> Curves | LeftOut:
    """Return any one measure over training, as the data of a figure of that name."""
    lines = lines_of(tables.trials, tables.history, metric)
    if not lines:
        return LeftOut(figure, f"no trial has a value of {metric} yet")
    how = estimation_for(tables.trials, tables.about.estimator)
    return _curves(tables, figure, [_panel(tables, metric, lines, how)], how)


def measures_data(tables: Tables, metrics: Sequence[str], *, figure: str) -> Curves | LeftOut:
    """Return several measures over training, a panel each; those without a value are left out."""
    how = estimation_for(tables.trials, tables.about.estimator)
    by_metric = {name: lines_of(tables.trials, tables.history, name) for name in metrics}
    panels = [_panel(tables, name, lines, how) for name, lines in by_metric.items() if lines]
    if not panels:
        return LeftOut(figure, f"no trial has a value of {' or '.join(metrics)} yet")
    return _curves(tables, figure, panels, how)


def dynamics_data(tables: Tables) -> Curves | LeftOut:
    """Return success, retrieval accuracy and reasoning entropy over training."""
    how = estimation_for(tables.trials, tables.about.estimator)
    by_metric = {name: lines_of(tables.trials, tables.history, name) for name in TRIO}
    if not by_metric[RETRIEVAL]:
        reason = "no trial measured collapse; run with --set collapse.every=5"
        return LeftOut(DYNAMICS, reason)
    panels = [_panel(tables, name, lines, how) for name, lines in by_metric.items()]
    return _curves(tables, DYNAMICS, panels, how)


def _panel(
    tables: Tables, metric: str, lines: Mapping[str, Sequence[SeedLine]], how: Estimation
) -> Panel:
    is_rate = is_rate_metric(metric)
    tasks = min(row.heldout_tasks for row in tables.trials)
    resolution = resolution_of(metric, tasks=tasks)
    levels = _own_levels(tables.trials) if metric == SUCCESS and tables.about.form >= 3 else {}
    series = tuple(
        Series(
            condition,
            means_of(own, how, resolution=resolution, is_rate=is_rate),
            tuple(own),
            tuple(levels.get(condition, ())),
        )
        for condition, own in lines.items()
    )
    references = tuple(_references(tables, metric, lines))
    return Panel(metric, label_of(metric), is_rate, references, series)


def _references(
    tables: Tables, metric: str, lines: Mapping[str, Sequence[SeedLine]]
) -> Iterable[Reference]:
    """Yield the levels that all conditions share."""
    known: list[tuple[str, float | None]] = []
    if metric == SUCCESS:
        yield from _floor(tables.trials)
        known += [(CEILING, _shared(tables.trials, "ceiling"))]
    if metric == tables.trials[0].metric:
        known += [(START, _start(chain.from_iterable(lines.values())))]
    if metric == RETRIEVAL:
        known += [("chance", chance_of(tables.history))]
    for name, value in known:
        if value is not None:
            yield Reference(name, value)


def _floor(trials: Sequence[TrialRow]) -> Iterable[Reference]:
    """Yield the floor that all trials share; a measured one has its interval."""
    value, low, high = (_shared(trials, f"floor{end}") for end in ("", "_low", "_high"))
    if value is not None and (low is None or high is None):
        yield Reference(FLOOR, value)
    elif value is not None and low is not None and high is not None:
        yield Reference(f"{FLOOR}, measured", value, Interval(low, high))


def _own_levels(trials: Sequence[TrialRow]) -> dict[str, list[Reference]]:
    """Return condition -> its floor and ceiling, each where every condition has one of its own."""
    groups = trials_by_condition(trials)
    levels: dict[str, list[Reference]] = {}
    for name, column in ((FLOOR, "floor"), (CEILING, "ceiling")):
        own = {label: _shared(group, column) for label, group in groups.items()}
        if _shared(trials, column) is not None or None in own.values():
            continue
        for label, value in own.items():
            if value is not None:
                levels.setdefault(label, []).append(Reference(name, value))
    return levels


def only(values: Iterable[float]) -> float | None:
    """Return the one value that all have; None where they differ, or without any."""
    known = set(values)
    return known.pop() if len(known) == 1 else None


def _shared(trials: Sequence[TrialRow], column: str) -> float | None:
    return only(value for row in trials if (value := getattr(row, column)) is not None)


def _start(lines: Iterable[SeedLine]) -> float | None:
    """Return the mean before training; None where conditions of one seed do not start alike."""
    starts: dict[int, set[float]] = {}
    for line in lines:
        if line.steps[0] == 0:
            starts.setdefault(line.seed, set()).add(line.values[0])
    if not starts or any(len(values) > 1 for values in starts.values()):
        return None
    return fmean(value for values in starts.values() for value in values)


def chance_of(history: Iterable[HistoryRow]) -> float | None:
    """Return the chance level of retrieval accuracy; None where conditions differ in it.

    It is 1 / prompts. A step in which a prompt fell out has another; the usual one counts.
    """
    levels: dict[str, list[float]] = {}
    for row in history:
        if row.metric == CHANCE and row.value is not None:
            levels.setdefault(row.condition, []).append(row.value)
    return only(mode(values) for values in levels.values())


def _curves(tables: Tables, name: str, panels: Sequence[Panel], how: Estimation) -> Curves:
    begun = [{one.condition: one.seeds for one in panel.series} for panel in panels]
    counts = [n for lines in begun for n in counts_of(lines)]
    means = [mean for panel in panels for one in panel.series for mean in one.means]
    notes = [
        *seed_notes(counts),
        *partial_notes(means),
        *narrow_notes(how.method, counts, enough=BOOTSTRAP_FROM),
    ]
    head = head_of(
        tables,
        name,
        notes=notes,
        caption=_caption(how, counts, means) + _ends_text(panels) + _levels_text(panels),
        alt=" ".join(_panel_alt(panel) for panel in panels),
    )
    return Curves(head, how.estimator, how.method, how.level, tuple(panels))


def _caption(how: Estimation, counts: Sequence[int], means: Sequence[Mean]) -> str:
    if max(counts) == 1:
        return "One seed per condition."
    caption = f"Thick: {estimate_text(how.estimator)} over {n_text(counts)}"
    if any(mean.low is not None for mean in means):
        caption += f", with its {interval_text(how.method, how.level)}"
    return f"{caption}. Thin: single seeds."


def _ends_text(panels: Sequence[Panel]) -> str:
    """Return what a cross is, where there is one."""
    lines = [line for panel in panels for one in panel.series for line in one.seeds]
    return " Cross: failed or diverged." if any(line.status in BAD_ENDS for line in lines) else ""


def _levels_text(panels: Sequence[Panel]) -> str:
    """Return what a dashed line in the colour of a condition is, where there is one."""
    found = [level.name for panel in panels for one in panel.series for level in one.levels]
    names = " and ".join(dict.fromkeys(found))
    return f" Dashed, in a condition's colour: its own {names}." if names else ""


def _panel_alt(panel: Panel) -> str:
    """Return a panel in words: where each condition ends."""
    ends = [f"{one.condition} {_end(one.means[-1])}" for one in panel.series]
    levels = [one.text for one in panel.references]
    levels += [f"{one.text} ({s.condition})" for s in panel.series for one in s.levels]
    if not ends:
        return f"No values of {panel.label}."
    words = f"Line chart of {panel.label} over training steps, ending at {'; '.join(ends)}."
    return f"{words} Levels: {', '.join(levels)}." if levels else words


def _end(mean: Mean) -> str:
    interval = "" if mean.low is None else f" [{mean.low:.3g}, {mean.high:.3g}]"
    return f"{mean.value:.3g}{interval} (step {mean.step}, n = {mean.n_seeds})"
