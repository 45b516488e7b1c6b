"""How good the predictions were: `expected_delta` of each row beside what it then measured."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from rltune.lineage.noise import OutcomesOf, difference_interval
from rltune.lineage.query import COMPARED
from rltune.lineage.row import LineageRow, resolve_alias
from rltune.maths.interval import Interval
from rltune.types import TrialSpec

_NUMBER = re.compile(r"[+\-\u2212]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_LESS = re.compile(r"\b(?:minus|less|lower|worse|down|drop|fall|decreas|reduc)", re.IGNORECASE)
_UNCLEAR = ("<", ">", "<=", ">=", "\u2264", "\u2265", "\u00b1", "+/", "-", "\u2212")
"""Before a number: a bound, a band, or a sign that stands apart."""
_EDITED = " // "
"""Between the predictions of a condition whose seeds began with different ones."""
_POINTS = re.compile(r"\s*(?:pp\b|percentage points?\b)")


@dataclass(frozen=True, slots=True)
class Prediction:
    """One prediction and its outcome."""

    exp_id: str  # the row
    text: str  # the prediction as it was written before the run
    expected: float | None  # its number; None when it is not exactly one number
    observed: float | None  # metric minus that of the parent; None when one of them has none
    interval: Interval | None  # 95 % interval of it over tasks; None without their outcomes

    @property
    def has_right_sign(self) -> bool | None:
        """Whether its sign was right; None when that cannot be judged.

        A prediction of no change is right when the interval holds zero.
        """
        if self.expected is None or self.observed is None:
            return None
        if self.expected != 0.0:
            return self.expected * self.observed > 0.0
        return self.interval.low <= 0.0 <= self.interval.high if self.interval else None

    @property
    def is_within(self) -> bool | None:
        """Whether the predicted number lies in the interval of the observed difference."""
        if self.expected is None or self.interval is None:
            return None
        return self.interval.low <= self.expected <= self.interval.high


@dataclass(frozen=True, slots=True)
class Calibration:
    """How good the predictions of a table were."""

    predictions: tuple[Prediction, ...]  # one a finished row with a prediction, in file order
    waiting: int  # rows with a prediction that did not finish
    signs: int  # how many can be judged by their sign
    right_signs: int  # how many of those had the right one
    sizes: int  # how many have both numbers
    mean_absolute_error: float | None  # mean of |expected - observed| over those; None without any
    intervals: int  # how many have an interval
    within: int  # how many of those predicted a number inside it


def told_by_condition(specs: Iterable[TrialSpec]) -> dict[str, str]:
    """Return condition -> its prediction, for those that have one.

    Seeds that began before and after an edit have different ones: all are named, none is judged.
    """
    told: dict[str, list[str]] = {}
    for spec in specs:
        texts = told.setdefault(spec.condition, [])
        if spec.expected_delta and spec.expected_delta not in texts:
            texts.append(spec.expected_delta)
    return {condition: _EDITED.join(texts) for condition, texts in told.items() if texts}


def parse_delta(text: str) -> float | None:
    """Return the one number of a prediction; None when there is not exactly one clear one.

    `-0.05 success` is -0.05, `+5 pp` is 0.05. Not clear are a per cent (it may be
    relative), a bound (`<0.02`), an unsigned number beside a word of less (`0.05 lower`), and what
    `told_by_condition` has joined.
    """
    numbers = list(_NUMBER.finditer(text))
    if len(numbers) != 1 or _EDITED in text:
        return None
    before, rest = text[: numbers[0].start()].rstrip(), text[numbers[0].end() :]
    is_signed = not numbers[0][0][0].isdigit() and numbers[0][0][0] != "."
    if before.endswith(_UNCLEAR) or (not is_signed and _LESS.search(text)):
        return None
    value = float(numbers[0][0].replace("\u2212", "-"))
    if rest.lstrip().startswith("%") or not math.isfinite(value):
        return None
    return value / 100.0 if _POINTS.match(rest) else value


def calibrate(rows: Sequence[LineageRow], outcomes_of: OutcomesOf) -> Calibration:
    """Compare every prediction with the difference between its row and its parent's."""
    by_id = {row.exp_id: row for row in reversed(rows)}
    told = [row for row in rows if row.expected_delta.strip()]
    done = [row for row in told if row.status in COMPARED]
    made = tuple(
        _prediction(row, by_id.get(resolve_alias(row.parent_exp, by_id)), outcomes_of)
        for row in done
    )
    return summed_up(made, waiting=len(told) - len(done))


def summed_up(made: tuple[Prediction, ...], *, waiting: int = 0) -> Calibration:
    """Return how good predictions were; `waiting` more have no outcome."""
    signs = [p.has_right_sign for p in made if p.has_right_sign is not None]
    errors = [
        abs(p.expected - p.observed)
        for p in made
        if p.expected is not None and p.observed is not None
    ]
    within = [p.is_within for p in made if p.is_within is not None]
    return Calibration(
        predictions=made,
        waiting=waiting,
        signs=len(signs),
        right_signs=sum(signs),
        sizes=len(errors),
        mean_absolute_error=fmean(errors) if errors else None,
        intervals=len(within),
        within=sum(within),
    )


def _prediction(row: LineageRow, parent: LineageRow | None, outcomes_of: OutcomesOf) -> Prediction:
    observed = interval = None
    if parent is not None and row.core_metric is not None and parent.core_metric is not None:
        observed = row.core_metric - parent.core_metric
        ours, theirs = outcomes_of(row), outcomes_of(parent)
        interval = difference_interval(ours, theirs) if ours and theirs else None
    return Prediction(
        row.exp_id, row.expected_delta, parse_delta(row.expected_delta), observed, interval
    )


def calibration_lines(calibration: Calibration, *, rival: str = "the parent's metric") -> list[str]:
    """Return the summary in sentences; none when nothing was predicted.

    `rival` is what each outcome was compared with.
    """
    if not calibration.predictions and not calibration.waiting:
        return []
    lines = []
    if calibration.signs:
        lines.append(f"right sign: {calibration.right_signs} of {calibration.signs} predictions")
    if calibration.mean_absolute_error is not None:
        lines.append(
            f"mean absolute error: {calibration.mean_absolute_error:.3f} over {calibration.sizes}, "
            f"against {rival}"
        )
    if calibration.intervals:
        share = f"{calibration.within} of {calibration.intervals}"
        lines.append(f"inside the 95 % interval of what was observed: {share}")
    unread = [p.text for p in calibration.predictions if p.expected is None]
    if unread:
        lines.append(f"without exactly one clear number, so not judged: {len(unread)}")
    orphans = sum(p.observed is None for p in calibration.predictions)
    if orphans:
        lines.append(f"without a parent's metric to compare with: {orphans}")
    if calibration.waiting:
        lines.append(f"predicted, but the trial gave no result: {calibration.waiting}")
    return lines
