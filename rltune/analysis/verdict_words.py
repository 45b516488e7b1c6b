"""The record of a verdict, and its words."""

from dataclasses import dataclass

from rltune.analysis.stats import Estimate
from rltune.maths.sequential import Look

LEVEL = 0.05
"""A claim is made when the adjusted p is below this."""

ABOVE, BELOW, SAME = "above", "below", "not separable"
EQUAL = "practically equal"
CONTROL = "the control"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The claim that the data allow about one condition against another.

    Attributes:
        condition: Its label.
        rival: What it is compared with: `the control`, or another label.
        word: `above`, `below`, `practically equal`, `not separable`, `stopped early at 20`, or `no
            verdict (why)`.
        n: Seeds that both have, ended at the same step.
        planned: Seeds planned; at most, with seeds until decided.
        step: The training step that all of them reached; None without any.
        planned_steps: Training steps planned.
        difference: Mean over those seeds of (condition - rival), with its own 95 % t interval; of
            looks the last one's, its interval adjusted for all looks and conditions.
        p: Of the paired t test, unadjusted; None with fewer than two pairs.
        p_holm: The same, adjusted over `comparisons`, and for the looks; None where nothing is
            ranked.
        comparisons: Comparisons that the adjustment is over.
        needed: Paired seeds that see this difference with 80 % power under the strictest level of
            the adjustment; None where that is unknown.
        same_as: Conditions that are the same run up to a factor.
        looks: With seeds until decided, every look that was taken.
        effect: The smallest difference of interest, where one was stated; else 0.

    """

    condition: str
    rival: str
    word: str
    n: int
    planned: int
    step: int | None
    planned_steps: int
    difference: Estimate
    p: float | None
    p_holm: float | None
    comparisons: int
    needed: int | None
    same_as: tuple[str, ...] = ()
    looks: tuple[Look, ...] = ()
    effect: float = 0.0

    @property
    def is_claim(self) -> bool:
        """Whether it claims that one is above the other."""
        return self.word in (ABOVE, BELOW)

    @property
    def words(self) -> str:
        """The verdict as every table has it: `word`, an early step, and what is the same run."""
        return f"{self.word}{self._early}{self._same}"

    @property
    def sentence(self) -> str:
        """The verdict for readers, with its rival, n and p."""
        if not self.is_ranked:
            return self.words
        joint = {SAME: " from", EQUAL: " to"}.get(self.word, "")
        return f"{self.word}{joint} {self.rival}{self._early}{self._same} ({self._evidence()})"

    @property
    def is_ranked(self) -> bool:
        """Whether the test decided the word."""
        return self.is_claim or self.word in (SAME, EQUAL)

    @property
    def _early(self) -> str:
        return early(self.step, self.planned_steps) if self.is_ranked else ""

    @property
    def _same(self) -> str:
        return (
            f"; the same run up to a factor as {' and '.join(self.same_as)}" if self.same_as else ""
        )

    def _evidence(self) -> str:
        if self.looks:
            return self._looked()
        n = f"n = {self.n}" if self.n == self.planned else f"n = {self.n} of {self.planned}"
        parts = [n]
        if self.p is not None and self.p_holm is not None:
            parts.append(p_text(self.p_holm))
            if self.comparisons > 1:
                parts[-1] = f"Holm {parts[-1]}, unadjusted {p_text(self.p)}"
        evidence = ", ".join(parts)
        if self.word != SAME or self.needed is None or self.needed <= self.n:
            return evidence
        return f"{evidence}; {self.needed:,} seeds for 80 % power"

    def _looked(self) -> str:
        """Return the evidence of the last look."""
        last = self.looks[-1]
        parts = [f"n = {self.n} of at most {self.planned}, look {len(self.looks)}"]
        if self.word == EQUAL:
            parts.append(f"within {self.effect:g}")
        if last.interval is not None:
            parts.append(f"adjusted interval {last.interval.low:+.3g} to {last.interval.high:+.3g}")
        if self.p_holm is not None:
            split = f" and {self.comparisons} conditions" if self.comparisons > 1 else ""
            parts.append(f"{p_text(self.p_holm)} adjusted for looks{split}")
        parts.append(f"unadjusted {p_text(last.p)}, boundary {last.boundary:.2g}")
        if self.word == SAME and self.needed is not None and self.needed > self.n:
            return f"{', '.join(parts)}; {self.needed:,} seeds for 80 % power"
        return ", ".join(parts)


def is_claim(words: str) -> bool:
    """Tell whether the words of a table say that one is above the other."""
    return words.startswith((ABOVE, BELOW))


def early(step: int | None, planned: int) -> str:
    """Return ` at step 12` where trials are compared before their last planned step."""
    return "" if step is None or step >= planned else f" at step {step}"


def p_text(p: float) -> str:
    """Return a p value to two digits; below 0.001 only that."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def word_of(difference: float, p: float | None) -> str:
    """Return what a test at `LEVEL` says of a difference."""
    if p is None or not p < LEVEL:
        return SAME
    return ABOVE if difference > 0 else BELOW
