"""The last gate of every seed, alone and against its control."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rltune.analysis.rates import RATES
from rltune.analysis.tables import SummaryRow, TrialRow
from rltune.comparability.findings import SEEDS_FOR_A_CLAIM
from rltune.report.figures.notes import conditions_of
from rltune.report.figures.records import Comparisons
from rltune.report.figures.source import Tables
from rltune.report.html.colours import colour, mark, ordered
from rltune.report.html.markup import Html, el, join
from rltune.report.html.scale import Scale, plain, rounded, scale_over, ticks

WIDTH = 460
LEFT, RIGHT, TOP, BOTTOM = 122, 16, 26, 40
ROW = 40
_LONGEST = 15  # characters of a condition's name beside its row


@dataclass(frozen=True, slots=True)
class Dot:
    """One seed: its value, the trial that it leads to, and what is said of it."""

    value: float
    trial_id: str
    words: str


@dataclass(frozen=True, slots=True)
class Strip:
    """One condition: its seeds, their estimate and its interval; what is said without a seed."""

    condition: str
    dots: tuple[Dot, ...]
    value: float | None
    low: float | None
    high: float | None
    empty: str = "no seed finished"


@dataclass(frozen=True, slots=True)
class Level:
    """A vertical line with a name."""

    name: str
    value: float


def final_strips(tables: Tables) -> list[Strip]:
    """Return the last gates of the finished trials of each condition."""
    estimates = {
        row.condition: row
        for row in tables.summary
        if (row.at, row.estimator, row.method) == ("final", "mean", "t")
    }
    return [
        _strip(label, [row for row in tables.trials if row.condition == label], estimates)
        for label in dict.fromkeys(row.condition for row in tables.trials)
    ]


def _strip(label: str, rows: Sequence[TrialRow], estimates: Mapping[str, SummaryRow]) -> Strip:
    dots = tuple(
        Dot(row.final, row.trial_id, f"{label}, seed {row.seed}: {rounded(row.final)}")
        for row in rows
        if row.final is not None
    )
    found = estimates.get(label)
    is_drawn = found is not None and found.n_seeds >= SEEDS_FOR_A_CLAIM
    return Strip(
        label,
        dots,
        found.value if found else None,
        found.ci_lo if found and is_drawn else None,
        found.ci_hi if found and is_drawn else None,
    )


def paired_strips(found: Comparisons) -> list[Strip]:
    """Return each condition's differences to the control, seed by seed."""
    return [
        Strip(
            row.condition,
            tuple(
                Dot(
                    pair.difference,
                    pair.trial_id,
                    f"{row.condition}, seed {pair.seed}: {pair.difference:+.3f} "
                    f"({rounded(pair.value)} against {rounded(pair.control_value)})",
                )
                for pair in row.pairs
            ),
            row.delta,
            row.low,
            row.high,
            empty="no pair at one step",
        )
        for row in found.rows
    ]


def draw_strips(
    strips: Sequence[Strip],
    tables: Tables,
    places: Mapping[str, str],
    *,
    axis: str,
    levels: Sequence[Level] = (),
    is_signed: bool = False,
) -> Html:
    """Return strips as a drawing whose dots lead to their trials.

    Args:
        strips: One a row.
        tables: Names and colours of the conditions.
        places: Trial id -> id of its row on the page.
        axis: What the numbers are.
        levels: Vertical lines.
        is_signed: Whether the numbers are differences.

    """
    height = TOP + ROW * len(strips) + BOTTOM
    is_rate = tables.trials[0].metric in RATES and not is_signed
    x = scale_over(
        [
            *(dot.value for strip in strips for dot in strip.dots),
            *(end for strip in strips for end in (strip.low, strip.high) if end is not None),
            *(level.value for level in levels),
        ],
        start=LEFT,
        end=WIDTH - RIGHT,
        limits=(0.0, 1.0) if is_rate else None,
    )
    parts = [_axis(x, height, axis, is_signed=is_signed), *_levels(levels, x, height)]
    parts += [_row(strip, at, tables, places, x) for at, strip in enumerate(strips)]
    label = f"{axis}, one mark a seed. " + "; ".join(map(_words, strips))
    return el(
        "svg",
        *parts,
        class_="chart",
        role="group",
        aria_label=label,
        viewBox=f"0 0 {WIDTH} {height}",
    )


def _words(strip: Strip) -> str:
    if not strip.dots:
        return f"{strip.condition}: {strip.empty}"
    around = "" if strip.low is None else f" [{strip.low:.3g}, {strip.high:.3g}]"
    mean = "" if strip.value is None else f", mean {strip.value:.3g}{around}"
    return f"{strip.condition}: {', '.join(f'{dot.value:.3g}' for dot in strip.dots)}{mean}"


def _axis(x: Scale, height: int, name: str, *, is_signed: bool) -> Html:
    bottom = height - BOTTOM
    marks = [
        join(
            el("path", d=f"M{x.at(tick)} {TOP}V{bottom}", class_="rule"),
            el(
                "text",
                f"{tick:+g}" if is_signed and tick else plain(tick),
                x=x.at(tick),
                y=bottom + 17,
                class_="mid",
            ),
        )
        for tick in ticks(x.low, x.high, most=4)
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    title = el("text", name, x=middle, y=height - 4, class_="mid soft")
    return el("g", *marks, title, aria_hidden="true")


def _levels(levels: Sequence[Level], x: Scale, height: int) -> list[Html]:
    """Return the levels with their names above, moved apart where they would touch."""
    drawn, free = [], 0.0
    for level in sorted(levels, key=lambda one: one.value):
        at, text = x.at(level.value), f"{level.name} {level.value:.3g}"
        half = 4.0 * len(text)
        middle = min(max(at, free + half, half), WIDTH - half)
        free = middle + half + 6
        drawn.append(el("path", d=f"M{at} {TOP - 6}V{height - BOTTOM}", class_="level"))
        drawn.append(el("text", text, x=middle, y=TOP - 11, class_="mid soft"))
    return drawn


def _row(strip: Strip, at: int, tables: Tables, places: Mapping[str, str], x: Scale) -> Html:
    conditions = ordered(conditions_of(tables.trials))
    index = next(i for i, one in enumerate(conditions) if one.label == strip.condition)
    y = TOP + ROW * at + ROW / 2
    one = conditions[index]
    name = one.short if len(one.short) <= _LONGEST else f"{one.short[: _LONGEST - 1]}…"
    words = f"{name} (control)" if one.is_control and len(name) < 7 else name
    parts = [el("text", words, x=LEFT - 10, y=y + 4.5, class_="end", aria_hidden="true")]
    count = len(strip.dots)
    for place, dot in enumerate(strip.dots):
        spread = 0.0 if count < 2 else (place / (count - 1) - 0.5) * 16
        shape = mark(index, x.at(dot.value), round(y + spread, 1), size=3.6)
        href = f"#{places[dot.trial_id]}"
        parts.append(el("a", el("title", dot.words), shape, href=href, aria_label=dot.words))
    if strip.low is not None and strip.high is not None:
        parts.append(el("path", d=f"M{x.at(strip.low)} {y}H{x.at(strip.high)}", class_="around"))
    if strip.value is not None and count > 1:
        middle = x.at(strip.value)
        parts.append(el("path", d=f"M{middle} {y - 13:g}v26", class_="estimate"))
    if not strip.dots:
        parts.append(el("text", strip.empty, x=LEFT + 8, y=y + 4.5, class_="soft"))
    return el("g", *parts, class_=colour(index), data_c=index)
