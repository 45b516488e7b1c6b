"""Sums: how one is drawn, spelt and worked out. No text of a prompt is here."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from rltune_envs.streams import stream


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum from left to right, whose partial results are never negative.

    Attributes:
        terms: Its terms with their signs, none of them 0; the first is positive.

    """

    terms: tuple[int, ...]

    @property
    def results(self) -> tuple[int, ...]:
        """The result after each term but the first; the last one is the result of the sum."""
        return tuple(accumulate(self.terms))[1:]

    def spelt(self, *, blank: str = "") -> str:
        """Return it as it is written, `7+5-4`.

        Args:
            blank: Written around each sign.

        """
        first, *others = self.terms
        signed = (f"{blank}{'-' if term < 0 else '+'}{blank}{abs(term)}" for term in others)
        return str(first) + "".join(signed)

    @property
    def unordered(self) -> str:
        """What sums of the same terms in another order share."""
        return " ".join(map(str, sorted(self.terms)))


@lru_cache(maxsize=65536)
def draw_sum(seed: int, terms: Sequence[int], largest: int) -> Sum:
    """Return the sum of a seed.

    A sign is drawn for each term, and is a plus where a minus would lead below 0.

    Args:
        seed: Makes it.
        terms: How many terms a sum may have, each number equally likely.
        largest: Greatest absolute value of a term.

    """
    rng = stream(f"arithmetic {tuple(terms)} {largest} {seed}")
    drawn = [rng.randint(1, largest)]
    total = drawn[0]
    for _ in range(rng.choice(terms) - 1):
        term = rng.randint(1, largest)
        is_minus = rng.random() < 0.5 and term <= total
        drawn.append(-term if is_minus else term)
        total += drawn[-1]
    return Sum(tuple(drawn))
